"""A plan's definition as values, and its normal form: the JSON that is stored, compared and digested (laws 70.1, 70.2).

What is made here is already judged: `reading` and `builder` name every fault before they make one of these.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import msgspec

Kind = Literal["command", "python", "workflow"]
Mode = Literal["none", "reference", "quote", "content"]
Backoff = Literal["none", "linear", "exponential"]
Outcome = Literal["success", "failure", "timeout", "cancelled", "launch_error", "lost", "invalid_output"]
Retryable = Literal["failure", "timeout", "launch_error", "invalid_output"]
OutputFrom = Literal["stdout", "file", "return"]
OnLost = Literal["fail", "replay", "ask"]

KINDS: Final[tuple[str, ...]] = get_args(Kind)
MODES: Final[tuple[str, ...]] = get_args(Mode)
BACKOFFS: Final[tuple[str, ...]] = get_args(Backoff)
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
RETRYABLE: Final[tuple[str, ...]] = get_args(Retryable)
ON_LOST: Final[tuple[str, ...]] = get_args(OnLost)

STEPS_MAX: Final = 20_000  # one end may skip all the others, and an end is one transaction
CONCURRENCY_DEFAULT: Final = 4
CONCURRENCY_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 100
DELAY_MS_MAX: Final = 7 * 24 * 3600 * 1000
TIMEOUT_MS_MAX: Final = 30 * 24 * 3600 * 1000
NAME_CHARS_MAX: Final = 100  # a run's id has 200: the plan's name, 12 of its digest, a step's id and a try must fit

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"


class Need(msgspec.Struct, frozen=True):
    """An edge: the step waits for that one's success; `optional`: for its end, whatever it was (law 70.3)."""

    step: str
    optional: bool = False


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """An output of an earlier step that arrives as an input (law 70.8). `id` names the binding."""

    id: str
    input: str
    step: str
    output: str
    mode: Mode = "content"
    required: bool = True
    description: str = ""


class StepRetry(msgspec.Struct, frozen=True, kw_only=True):
    """Up to `max_attempts` tries in all, when a try ended with an outcome that `on` lists (law 70.7).

    The delay before try n + 1, in ms: none: `initial_delay_ms`; linear: n times it; exponential: it, doubled n - 1 times; never more
    than `max_delay_ms` where that is over 0. `lost` cannot be listed: it follows the step's `on_lost` (law 70.10).
    """

    max_attempts: int = 1
    backoff: Backoff = "none"
    initial_delay_ms: int = 0
    max_delay_ms: int = 0
    on: tuple[Retryable, ...] = ("failure",)


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A named output: where it is taken from, and what it must be. With a `schema` it is JSON, and judged by it."""

    from_: OutputFrom = msgspec.field(name="from")
    path: str | None = None
    media_type: str = BYTES
    schema: dict[str, Any] | bool | None = None
    required: bool = True


class Common(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What steps of every kind have."""

    id: str
    needs: tuple[Need, ...] = ()
    handoffs: tuple[Handoff, ...] = ()
    retry: StepRetry = StepRetry()
    timeout_ms: int | None = None
    on_lost: OnLost
    initially_skipped: bool = False
    outputs: dict[str, Output]


class CommandStep(Common, frozen=True, kw_only=True, tag="command"):
    """A program and its arguments; no shell. argv, env, cwd and stdin may hold templates (templates.py)."""

    kind: ClassVar[Literal["command"]] = "command"
    command: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None
    stdin: str | None = None


class PythonStep(Common, frozen=True, kw_only=True, tag="python"):
    """A function of a module, `module:function`, in a process of its own."""

    kind: ClassVar[Literal["python"]] = "python"
    python: str
    env: dict[str, str] = {}
    cwd: str | None = None
    input: dict[str, Any] = {}


class WorkflowStep(Common, frozen=True, kw_only=True, tag="workflow"):
    """A workflow by the name it is registered under, as a child run (law 70.14)."""

    kind: ClassVar[Literal["workflow"]] = "workflow"
    workflow: str
    input: dict[str, Any] | None = None


Step: TypeAlias = CommandStep | PythonStep | WorkflowStep


class Definition(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A plan, judged: its steps in written order."""

    name: str
    max_concurrency: int = CONCURRENCY_DEFAULT
    steps: tuple[Step, ...]

    @cached_property
    def canonical(self) -> str:
        """The normal form as text: every field there, keys in order, nothing between the signs. Two equal plans have one."""
        return _encode(self).decode()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical text: 64 hex digits."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    @property
    def run_id(self) -> str:
        """The id that a run of this plan has unless one is given: the same plan is the same run."""
        return f"{self.name}-{self.digest[:12]}"

    def normal(self) -> dict[str, Any]:
        """The normal form as plain values of JSON."""
        found: dict[str, Any] = msgspec.json.decode(self.canonical)
        return found


_encode: Final = msgspec.json.Encoder(order="sorted").encode
_definition: Final = msgspec.json.Decoder(Definition).decode


def definition_of(text: str) -> Definition:
    """The definition that a normal form holds. Raises msgspec.ValidationError or DecodeError where it is none."""
    return _definition(text)


def step_of(normal: object) -> Step:
    """The step that one entry of a normal form's `steps` holds. Raises msgspec.ValidationError where it is none."""
    found: Step = msgspec.convert(normal, Step)
    return found

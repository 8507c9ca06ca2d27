"""What an author declares: steps, workflows, retries, and the answers of a look-up.

Everything that means nothing (zero tries, a negative time-out, an infinite delay) is refused where it is declared.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import sys
import typing
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar

from fencepost import limits
from fencepost.values import check_name
from fencepost.words import OnLost

if TYPE_CHECKING:
    from fencepost.worker.context import Context

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
I_contra = TypeVar("I_contra", contravariant=True)
O_co = TypeVar("O_co", covariant=True)

Scope = Literal["run", "org"]

_step_key: ContextVar[object] = ContextVar("fencepost_step_key")


def step_key() -> str:
    """This step call's key: the same on every replay and in every retry, another for every step, row and run (law 50.3).

    Give it to providers as their idempotency key. Raises RuntimeError outside a step.
    """
    try:
        return str(_step_key.get())
    except LookupError:
        raise RuntimeError("step_key() has a value inside a step only") from None


@dataclass(frozen=True, slots=True)
class Found(Generic[R_co]):
    """A look-up's answer: it happened, and this is its value. Final (law 50.11)."""

    value: R_co


@dataclass(frozen=True, slots=True)
class Absent:
    """A look-up's answer: it did not happen, as far as the provider knows now. Law 50.11 says when that permits a run."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A look-up's answer: it cannot say."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """What `wait_for` gives when its time was over first; told apart from every payload (law 60.5)."""


@dataclass(frozen=True, slots=True)
class Arrived(Generic[R_co]):
    """What `wait_for_first` gives: which signal came, and its payload."""

    name: str
    value: R_co


def seconds(value: timedelta | float, what: str, *, zero: bool = False) -> float:
    """A finite, positive number of seconds (or, with `zero`, none). Raises ValueError naming `what`."""
    number = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise ValueError(f"{what} must be a finite time{' of at least 0' if zero else ' over 0'}, not {value!r}")
    return number


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """Try again when one of `on` was raised: up to `tries` in all, after `delay` seconds that grow by `factor` up to `most`, with jitter.

    `after` reads from what was raised how many seconds the other side asks to be left alone (`Retry-After`); None: it does not say.
    Nobody asks again before; where that is more than `most`, nobody asks again at all.
    On a step that is not repeatable a retry declares: when this was raised, nothing happened (law 50.10).
    """

    tries: int
    on: tuple[type[BaseException], ...]
    delay: float
    factor: float
    most: float
    after: Callable[[Exception], float | None] | None

    def __init__(
        self, tries: int, *, on: tuple[type[Exception], ...] = (Exception,), delay: timedelta | float = 1.0, factor: float = 2.0,
        most: timedelta | float = 60.0, after: Callable[[Exception], float | None] | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(tries, int) or isinstance(tries, bool) or tries < 1:
            raise ValueError(f"tries must be a whole number of at least 1, not {tries!r}")
        if not on or not all(isinstance(t, type) and issubclass(t, Exception) for t in on):
            raise ValueError(f"on must be a tuple of exception classes, not {on!r}")
        if not math.isfinite(factor) or factor < 1:
            raise ValueError(f"factor must be a finite number of at least 1, not {factor!r}")
        object.__setattr__(self, "tries", tries)
        object.__setattr__(self, "on", tuple(on))
        object.__setattr__(self, "delay", seconds(delay, "delay", zero=True))
        object.__setattr__(self, "factor", float(factor))
        object.__setattr__(self, "most", seconds(most, "most", zero=True))
        object.__setattr__(self, "after", after)

    def pause(self, failed: int, chance: float) -> float:
        """Seconds to wait after the `failed`-th failure; `chance` in [0, 1) is the jitter's draw."""
        whole: float = min(self.delay * self.factor ** min(failed - 1, 64), self.most)
        return whole * (0.5 + chance / 2)

    @property
    def longest(self) -> float:
        """Seconds that all its pauses can take together."""
        if self.after is not None:
            return self.most * (self.tries - 1)
        return sum(self.pause(n, 1.0) for n in range(1, self.tries))

    def asked(self, error: Exception) -> float:
        """Seconds that `error` asks for; 0 where it does not say, or what is said is no time."""
        said = None if self.after is None else self.after(error)
        return said if isinstance(said, int | float) and not math.isnan(said) and said > 0 else 0.0


@dataclass(eq=False)
class Step(Generic[P, R]):
    """A declared step. Called directly it is the plain function; `ctx.step(this, …)` makes it durable."""

    function: Callable[P, Any]
    name: str
    repeatable: bool
    retry: Retry | None
    timeout: float | None
    errors: tuple[type[Exception], ...]
    lookup: Callable[..., Any] | None
    lookup_timeout: float
    settle: float
    key_honoured: bool
    unknown_on: tuple[type[Exception], ...] = ()
    scope: Scope = "run"
    epoch: str | Callable[[], str] | None = None
    key: Callable[P, str | int] | None = None

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The plain function, undurable: for tests and for use outside workflows."""
        return self.function(*args, **kwargs)

    @functools.cached_property
    def longest(self) -> float | None:
        """Seconds that all its tries can take, each to its time-out, and the pauses between them; None without a time-out."""
        if self.timeout is None or self.retry is None:
            return self.timeout
        return self.timeout * self.retry.tries + self.retry.longest

    @functools.cached_property
    def is_async(self) -> bool:
        """Async steps run on the worker's loop, sync ones in its threads."""
        return inspect.iscoroutinefunction(self.function)

    @functools.cached_property
    def returns(self) -> Any:
        """The annotation that stored values are decoded to; Any where the author gave none."""
        return type_hints(self.function).get("return", Any)


class AsyncStep(Step[P, R]):
    """A step of an async function."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
            """As the function: to be awaited."""
            ...


class SyncStep(Step[P, R]):
    """A step of a plain function."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """As the function."""
            ...


@dataclass(eq=False)
class Workflow(Generic[I_contra, O_co]):
    """A declared workflow: `async def name(ctx, input) -> output`, or without an input."""

    function: Callable[..., Coroutine[Any, Any, Any]]
    name: str
    retry: Retry | None
    on_lost: OnLost | None

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)

    @functools.cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())

    @functools.cached_property
    def takes_input(self) -> bool:
        return len(self._parameters) > 1

    @functools.cached_property
    def input_type(self) -> Any:
        """The annotation of the input; None for a workflow without one."""
        return type_hints(self.function).get(self._parameters[1].name, Any) if self.takes_input else None

    @functools.cached_property
    def returns(self) -> Any:
        return type_hints(self.function).get("return", Any)

    @functools.cached_property
    def digest(self) -> str:
        """Names the code (law 50.4): of the whole module's source where it can be read, for a helper's change counts too."""
        try:
            text = inspect.getsource(sys.modules[self.function.__module__])
        except (OSError, TypeError, KeyError):
            text = self.function.__code__.co_code.hex() + repr(self.function.__code__.co_consts)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def __call__(self, *_: Any) -> Any:
        """Not to be called: a workflow runs through `app.start`, `ctx.run_child` or the command line."""
        raise TypeError(f"workflow {self.name} is started with app.start(…) or ctx.run_child(…), not called")


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, resolved. Raises TypeError that names the function and what could not be resolved."""
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise TypeError(f"{function.__qualname__}: annotation {error.name!r} cannot be resolved at run time") from error


@dataclass(slots=True)
class Registry:
    """What an App has declared, by name."""

    steps: dict[str, Step[..., Any]] = field(default_factory=dict[str, "Step[..., Any]"])
    workflows: dict[str, Workflow[Any, Any]] = field(default_factory=dict[str, "Workflow[Any, Any]"])


DEFAULT_LOOKUP_TIMEOUT: Final = limits.LOOKUP_TIMEOUT_SECONDS
Lookup = Callable[Concatenate[str, P], Awaitable[Found[R] | Absent | Unknown]]


def make_step(
    function: Callable[..., Any], *, name: str | None, repeatable: bool, retry: Retry | None, timeout: timedelta | float | None,
    errors: tuple[type[Exception], ...], lookup: Callable[..., Any] | None, lookup_timeout: timedelta | float, settle: timedelta | float,
    key_honoured: bool, unknown_on: tuple[type[Exception], ...] = (), scope: Scope = "run", epoch: str | Callable[[], str] | None = None,
    key: Callable[..., str | int] | None = None,
) -> Step[..., Any]:  # fmt: skip
    """Judge a declaration. Raises ValueError or TypeError that names the step and the argument."""
    what = f"step {name or getattr(function, '__name__', function)}"
    if not callable(function) or inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{what}: a step is a function or an async function, not {function!r}")
    if lookup is not None and repeatable:
        raise ValueError(f"{what}: a repeatable step is simply run again, so it needs no lookup")
    if lookup is not None and not inspect.iscoroutinefunction(lookup):
        raise TypeError(f"{what}: lookup must be an async function of (key, …the step's arguments)")
    if unknown_on and repeatable:
        raise ValueError(f"{what}: a repeatable step is run again whatever it raised, so unknown_on says nothing")
    if key_honoured and lookup is None:
        raise ValueError(f"{what}: key_honoured speaks about a lookup's Absent, and there is no lookup")
    bad = [e for e in (*errors, *unknown_on) if not (isinstance(e, type) and issubclass(e, Exception))]
    if bad:
        raise TypeError(f"{what}: errors and unknown_on must be exception classes, not {bad[0]!r}")
    _judge_scope(what, scope, epoch, key)
    is_async = inspect.iscoroutinefunction(function)
    step_class: type[Step[..., Any]] = AsyncStep[..., Any] if is_async else SyncStep[..., Any]
    return step_class(
        function=function, name=check_name(name or function.__name__, "a step's name"), repeatable=repeatable, retry=retry,
        timeout=None if timeout is None else seconds(timeout, f"{what}: timeout"), errors=tuple(errors), lookup=lookup,
        lookup_timeout=seconds(lookup_timeout, f"{what}: lookup_timeout"), settle=seconds(settle, f"{what}: settle", zero=True),
        key_honoured=key_honoured,
        unknown_on=tuple(unknown_on), scope=scope, epoch=epoch, key=key,
    )  # fmt: skip


def _judge_scope(what: str, scope: object, epoch: object, key: object) -> None:
    if scope not in ("run", "org"):
        raise ValueError(f"{what}: scope is run or org, not {scope!r}")
    if scope == "run" and (epoch is not None or key is not None):
        raise ValueError(f"{what}: epoch and key speak about scope='org'; a step of a run is kept under its call")
    if scope == "org" and epoch is None:
        raise ValueError(
            f"{what}: scope='org' needs an epoch: until when what was done once stands for every run, such as '2026-11'"
        )
    if isinstance(epoch, str):
        check_name(epoch, f"{what}: epoch")
    elif epoch is not None and (not callable(epoch) or inspect.iscoroutinefunction(epoch)):
        raise TypeError(f"{what}: epoch is a text, or a plain function that gives one, not {epoch!r}")
    if key is not None and (not callable(key) or inspect.iscoroutinefunction(key)):
        raise TypeError(f"{what}: key is a plain function of the step's arguments, not {key!r}")


def make_workflow(
    function: Callable[..., Any], *, name: str | None, retry: Retry | None, on_lost: OnLost | None
) -> Workflow[Any, Any]:
    """Judge a declaration. Raises ValueError or TypeError that names the workflow and what is wrong."""
    what = f"workflow {name or getattr(function, '__name__', function)}"
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{what}: a workflow is an async function (ctx, input) -> output")
    if retry is not None and retry.after is not None:
        raise ValueError(f"{what}: after= is for a step's retry; a workflow sees StepFailed, which says no time")
    if len(inspect.signature(function).parameters) not in (1, 2):
        raise TypeError(
            f"{what}: a workflow takes the context and at most one input (put several values into one model)"
        )
    if on_lost not in (None, "replay", "fail", "ask"):
        raise ValueError(f"{what}: on_lost is replay, fail or ask, not {on_lost!r}")
    return Workflow(
        function=function, name=check_name(name or function.__name__, "a workflow's name"), retry=retry, on_lost=on_lost
    )


WorkflowFunction = Callable[["Context", I_contra], Coroutine[Any, Any, O_co]]

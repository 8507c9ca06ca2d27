"""A plan in Python: steps and edges are values, so that a wrong edge is an error of the type checker.

    plan = Plan("notes", max_concurrency=2)
    log = plan.command("log", ["git", "log", "--oneline"], outputs={"log": stdout()})
    plan.command("notes", ["python", "notes.py"], needs=[log], inputs={"log": log.output("log").content()}, outputs={"notes": file("notes.md")})

What is made here is judged exactly as a file is (document.py): `definition()` gives the plan, or every fault of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias, cast

import msgspec

from fencepost.authoring import Workflow
from fencepost.errors import PlanFault, PlanInvalid
from fencepost.planning import document, model
from fencepost.planning.callables import place_of
from fencepost.shown import clip, shown, type_name


@dataclass(frozen=True, slots=True, eq=False)
class PlanStep:
    """A step of a plan, as `plan.command` and the others give it: what other steps need, and whose outputs they are handed."""

    plan: Plan
    id: str

    def output(self, name: str = "result") -> PlanOutput:
        """One of its outputs, by its name."""
        return PlanOutput(self, name)

    def optional(self) -> PlanNeed:
        """An edge that waits for the step's end, whatever it was (law 70.3)."""
        return PlanNeed(self, optional=True)


@dataclass(frozen=True, slots=True, eq=False)
class PlanNeed:
    """An edge to a step."""

    step: PlanStep
    optional: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PlanInput:
    """A hand-off: an output of another step that arrives as an input, in a mode (law 70.8)."""

    output: PlanOutput
    mode: model.Mode
    required: bool = True
    description: str = ""
    id: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PlanOutput:
    """An output of a step. Say how it is to arrive: its content, a quote of it, a reference to it, or none of it."""

    step: PlanStep
    name: str

    def content(self, *, required: bool = True, description: str = "", id: str | None = None) -> PlanInput:
        """The value."""
        return PlanInput(self, "content", required, description, id)

    def quote(self, *, required: bool = True, description: str = "", id: str | None = None) -> PlanInput:
        """The value verbatim, with its digest and where it is from."""
        return PlanInput(self, "quote", required, description, id)

    def reference(self, *, required: bool = True, description: str = "", id: str | None = None) -> PlanInput:
        """Where it is kept, and its digest."""
        return PlanInput(self, "reference", required, description, id)

    def none(self, *, required: bool = True, description: str = "", id: str | None = None) -> PlanInput:
        """Nothing of it: only that it is there."""
        return PlanInput(self, "none", required, description, id)


@dataclass(frozen=True, slots=True)
class PlanTarget:
    """What an output of this step is taken from: made by `stdout`, `file` and `returned`."""

    fields: Mapping[str, Any]


def stdout(
    *, media_type: str | None = None, schema: Mapping[str, Any] | None = None, required: bool = True
) -> PlanTarget:
    """An output that is what the step writes to its standard output."""
    return PlanTarget(_present(**{"from": "stdout"}, media_type=media_type, schema=schema, required=required))


def file(
    path: str, *, media_type: str | None = None, schema: Mapping[str, Any] | None = None, required: bool = True
) -> PlanTarget:
    """An output that is a file, by its path in the attempt's folder of outputs."""
    return PlanTarget(_present(**{"from": "file"}, path=path, media_type=media_type, schema=schema, required=required))


def returned(*, schema: Mapping[str, Any] | None = None, required: bool = True) -> PlanTarget:
    """An output that is what the step's Python function returns, as JSON."""
    return PlanTarget(_present(**{"from": "return"}, schema=schema, required=required))


Needs: TypeAlias = Sequence[PlanStep | PlanNeed]
Inputs: TypeAlias = Mapping[str, PlanInput]
Outputs: TypeAlias = Mapping[str, PlanTarget]
Function: TypeAlias = Callable[..., Any]

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(slots=True, eq=False)
class Plan:
    """A graph of steps, made in Python. The same plan written as a file has the same digest, so it is the same run."""

    name: str
    max_concurrency: int = model.CONCURRENCY_DEFAULT
    _steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]], init=False, repr=False)

    def command(
        self, id: str, command: Sequence[str], *, needs: Needs = (), inputs: Inputs = _NOTHING, outputs: Outputs = _NOTHING,
        env: Mapping[str, str] = _NOTHING, cwd: str | None = None, stdin: str | None = None, retry: model.StepRetry | None = None,
        timeout: timedelta | None = None, on_lost: model.OnLost | None = None, initially_skipped: bool = False,
    ) -> PlanStep:  # fmt: skip
        """A program and its arguments, without a shell, in a fresh folder for each attempt."""
        argv = command if isinstance(command, str) else [*command]
        return self._add(
            {"id": id, "command": argv, "env": dict(env), "cwd": cwd, "stdin": stdin}, needs, inputs, outputs or None,
            retry=retry, timeout=timeout, on_lost=on_lost, initially_skipped=initially_skipped,
        )  # fmt: skip

    def python(
        self, id: str, function: Function | str, *, needs: Needs = (), inputs: Inputs = _NOTHING, outputs: Outputs = _NOTHING,
        input: Mapping[str, Any] = _NOTHING, env: Mapping[str, str] = _NOTHING, cwd: str | None = None,
        retry: model.StepRetry | None = None, timeout: timedelta | None = None, on_lost: model.OnLost | None = None,
        initially_skipped: bool = False,
    ) -> PlanStep:  # fmt: skip
        """A function of a module, itself or as `module:function`, in a process of its own. Raises ValueError for one that cannot be imported."""
        place = function if isinstance(function, str) else place_of(function)
        return self._add(
            {"id": id, "python": place, "env": dict(env), "cwd": cwd, "input": dict(input)}, needs, inputs, outputs or None,
            retry=retry, timeout=timeout, on_lost=on_lost, initially_skipped=initially_skipped,
        )  # fmt: skip

    def workflow(
        self, id: str, workflow: Workflow[Any, Any] | str, *, needs: Needs = (), inputs: Inputs = _NOTHING,
        input: Mapping[str, Any] | None = None, retry: model.StepRetry | None = None, on_lost: model.OnLost | None = None,
        initially_skipped: bool = False,
    ) -> PlanStep:  # fmt: skip
        """A workflow, itself or by its registered name, as a child run. Its one output is `result`."""
        name = workflow if isinstance(workflow, str) else workflow.name
        given = None if input is None else dict(input)
        return self._add(
            {"id": id, "workflow": name, "input": given}, needs, inputs, None,
            retry=retry, timeout=None, on_lost=on_lost, initially_skipped=initially_skipped,
        )  # fmt: skip

    def definition(self) -> model.Definition:
        """The plan, judged. Raises PlanInvalid: every fault of it."""
        found = self._judged()
        if isinstance(found, model.Definition):
            return found
        raise PlanInvalid(f"plan {clip(str(self.name), 100)}", found)

    def validate(self) -> list[PlanFault]:
        """Every fault of the plan; none: it can be run."""
        found = self._judged()
        return [] if isinstance(found, model.Definition) else found

    def _judged(self) -> model.Definition | list[PlanFault]:
        found = document.judge({"name": self.name, "max_concurrency": self.max_concurrency, "step": self._steps})
        return found if isinstance(found, model.Definition) else [*found.invalid("", lambda _: None).faults]

    def _add(
        self, own: dict[str, Any], needs: Needs, inputs: Inputs, outputs: Outputs | None, *, retry: model.StepRetry | None,
        timeout: timedelta | None, on_lost: model.OnLost | None, initially_skipped: bool,
    ) -> PlanStep:  # fmt: skip
        step = PlanStep(self, own["id"])
        self._steps.append(
            _present(
                **own,
                needs=[_need(self, step, need) for need in needs],
                handoffs=[_handoff(self, step, name, given) for name, given in inputs.items()],
                outputs=None if outputs is None else {name: dict(target.fields) for name, target in outputs.items()},
                retry=None if retry is None else msgspec.to_builtins(retry, builtin_types=()),
                timeout=None if timeout is None else f"{timeout // timedelta(milliseconds=1)}ms",
                on_lost=on_lost,
                initially_skipped=initially_skipped,
            )
        )
        return step


def _present(**fields: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in fields.items() if value is not None}


def _plain(value: Any) -> Any:
    """Mappings and tuples as the readers of files give them."""
    if isinstance(value, Mapping):
        parts = cast("Mapping[object, object]", value)
        if odd := [key for key in parts if not isinstance(key, str)]:
            raise TypeError(f"{shown(odd[0], 40)} is a key of type {type_name(odd[0])}, and keys are text")
        return {key: _plain(part) for key, part in parts.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in cast("Sequence[Any]", value)]
    return value


def _need(plan: Plan, step: PlanStep, need: PlanStep | PlanNeed) -> dict[str, Any] | str:
    edge = need if isinstance(need, PlanNeed) else PlanNeed(need)
    other = _own(plan, step, edge.step)
    return {"step": other, "optional": True} if edge.optional else other


def _handoff(plan: Plan, step: PlanStep, name: str, given: PlanInput) -> dict[str, Any]:
    source = _own(plan, step, given.output.step)
    found = {"input": name, "from": f"{source}.{given.output.name}", "mode": given.mode, "required": given.required}
    return (
        found
        | ({"description": given.description} if given.description else {})
        | ({"id": given.id} if given.id else {})
    )


def _own(plan: Plan, step: PlanStep, other: PlanStep) -> str:
    if not isinstance(other, PlanStep):
        raise TypeError(f"step {step.id!r}: an edge leads to what plan.command(…) gave, not to {shown(other, 80)}")
    if other.plan is not plan:
        raise ValueError(f"step {step.id!r}: step {other.id!r} belongs to another plan, {other.plan.name!r}")
    return other.id

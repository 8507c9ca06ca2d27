"""The App: where steps and workflows are declared, and from which runs are started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Protocol, TypeVar, cast, overload

from fencepost import limits
from fencepost.authoring import (
    Absent,
    AsyncStep,
    Found,
    P,
    R,
    Registry,
    Retry,
    Scope,
    Step,
    SyncStep,
    Unknown,
    Workflow,
    make_step,
    make_workflow,
)
from fencepost.values import check_name
from fencepost.words import OnLost, Source

if TYPE_CHECKING:
    import asyncpg

    from fencepost.client import Client, Handle
    from fencepost.worker.context import Context

In = TypeVar("In")
Out = TypeVar("Out")


class _StepDecorator(Protocol):
    @overload
    def __call__(  # type: ignore[overload-overlap]  # a coroutine function is a function too: the narrower one comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncStep[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncStep[P, R]: ...


class _LookedUpDecorator(Protocol[P, R]):
    """The step has the arguments and the value of its look-up."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a coroutine function is a function too: the narrower one comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncStep[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncStep[P, R]: ...


class _WorkflowDecorator(Protocol):
    @overload
    def __call__(self, function: Callable[[Context, In], Coroutine[Any, Any, Out]], /) -> Workflow[In, Out]: ...
    @overload
    def __call__(self, function: Callable[[Context], Coroutine[Any, Any, Out]], /) -> Workflow[None, Out]: ...


class App:
    """A named collection of steps and workflows. `release` is read from the settings when it is first needed, unless given.

    Declaring anything twice under one name is refused: a name is what history is recorded under.
    """

    def __init__(self, name: str, *, release: str | None = None) -> None:
        self.name = check_name(name, "an app's name")
        self.release = release
        self.registry = Registry()
        self._client: Client | None = None

    @overload
    def step(
        self, *, lookup: Callable[Concatenate[str, P], Awaitable[Found[R] | Absent | Unknown]], name: str | None = None,
        retry: Retry | None = None, timeout: timedelta | float | None = None, errors: list[type[Exception]] | tuple[type[Exception], ...] = (),
        lookup_timeout: timedelta | float = ..., settle: timedelta | float = ..., key_honoured: bool = False,
        unknown_on: list[type[Exception]] | tuple[type[Exception], ...] = (), scope: Scope = "run",
        epoch: str | Callable[[], str] | None = None, key: Callable[P, str | int] | None = None,
    ) -> _LookedUpDecorator[P, R]: ...  # fmt: skip
    @overload
    def step(
        self, *, name: str | None = None, repeatable: bool = False, retry: Retry | None = None, timeout: timedelta | float | None = None,
        errors: list[type[Exception]] | tuple[type[Exception], ...] = (),
        unknown_on: list[type[Exception]] | tuple[type[Exception], ...] = (), scope: Scope = "run",
        epoch: str | Callable[[], str] | None = None, key: Callable[..., str | int] | None = None,
    ) -> _StepDecorator: ...  # fmt: skip
    def step(
        self, *, lookup: Callable[..., Any] | None = None, name: str | None = None, repeatable: bool = False, retry: Retry | None = None,
        timeout: timedelta | float | None = None, errors: list[type[Exception]] | tuple[type[Exception], ...] = (),
        lookup_timeout: timedelta | float = limits.LOOKUP_TIMEOUT_SECONDS, settle: timedelta | float = limits.SETTLE_SECONDS,
        key_honoured: bool = False, unknown_on: list[type[Exception]] | tuple[type[Exception], ...] = (), scope: Scope = "run",
        epoch: str | Callable[[], str] | None = None, key: Callable[..., str | int] | None = None,
    ) -> Any:  # fmt: skip
        """Declare a step.

        `repeatable`: may run twice, also at the same time (law 50.11). Not repeatable, the default: marked before it runs, begun at most
        once, unknown when lost. `retry`, `timeout` (seconds, a durable deadline), `errors` (classes raised to the workflow as
        themselves), `lookup` (asked for the outcome after a loss, with the step's key and arguments), `settle` and `key_honoured`
        (when Absent permits a run), `unknown_on` (classes after which nobody knows whether it happened: as after a loss).
        `scope="org"`: done once for the whole organisation and given to every run that asks with the same `key` (a function of the
        arguments; else a hash of them) until its `epoch` (a text, or a function that gives one) is another (law 50.9).
        Raises ValueError or TypeError for a declaration that means nothing.
        """

        def declare(function: Callable[..., Any]) -> Step[..., Any]:
            step = make_step(
                function, name=name, repeatable=repeatable, retry=retry, timeout=timeout, errors=tuple(errors), lookup=lookup,
                lookup_timeout=lookup_timeout, settle=settle, key_honoured=key_honoured, unknown_on=tuple(unknown_on), scope=scope,
                epoch=epoch, key=key,
            )  # fmt: skip
            if step.name in self.registry.steps:
                raise ValueError(f"app {self.name} has a step named {step.name!r} already: give one of them name=")
            self.registry.steps[step.name] = step
            return step

        return declare

    def workflow(
        self, *, name: str | None = None, retry: Retry | None = None, on_lost: OnLost | None = None
    ) -> _WorkflowDecorator:
        """Declare a workflow. `retry`: a declared workflow retry (law 50.10). `on_lost`: what a lost attempt means (85.7); unset, replay."""

        def declare(function: Callable[..., Any]) -> Workflow[Any, Any]:
            workflow = make_workflow(function, name=name, retry=retry, on_lost=on_lost)
            if workflow.name in self.registry.workflows:
                raise ValueError(
                    f"app {self.name} has a workflow named {workflow.name!r} already: give one of them name="
                )
            self.registry.workflows[workflow.name] = workflow
            return workflow

        return cast("_WorkflowDecorator", declare)

    def client(self) -> Client:
        """This app's client, made once from the settings (FENCEPOST_DATABASE_URL …); opens connections when first asked."""
        if self._client is None:
            from fencepost.client import Client

            self._client = Client.from_settings(release=self.release)
        return self._client

    @overload
    async def start(
        self, workflow: Workflow[None, Out], /, *, id: str | None = None, org: str = "default", source: Source = "program",
        priority: int | None = None, delay: timedelta | float | None = None, conn: asyncpg.Connection | None = None,
    ) -> Handle[Out]: ...  # fmt: skip
    @overload
    async def start(
        self, workflow: Workflow[In, Out], input: In, /, *, id: str | None = None, org: str = "default", source: Source = "program",
        priority: int | None = None, delay: timedelta | float | None = None, conn: asyncpg.Connection | None = None,
    ) -> Handle[Out]: ...  # fmt: skip
    async def start(
        self, workflow: Workflow[Any, Out], input: Any = None, /, *, id: str | None = None, org: str = "default", source: Source = "program",
        priority: int | None = None, delay: timedelta | float | None = None, conn: asyncpg.Connection | None = None,
    ) -> Handle[Out]:  # fmt: skip
        """Admit a run, once; with `conn` inside your own transaction. The same id with the same launch gives the same run.

        Raises LaunchConflict (the id has another launch), LaunchRefused, Unstorable (with the path), SchemaMismatch, BadSettings.
        """
        return await self.client().start(
            workflow, input, id=id, org=org, source=source, priority=priority, delay=delay, conn=conn
        )

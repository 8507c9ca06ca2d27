"""The client: starts runs and gives handles on them. It opens connections when it is first asked, and never runs a workflow."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from fencepost import admission, lanes, limits
from fencepost.admission import Admission, Admitted, Conflict, Launch
from fencepost.authoring import Workflow, seconds
from fencepost.client.ears import Ears
from fencepost.client.handle import Handle
from fencepost.client.launching import as_given, desk, judge_words
from fencepost.db import Database
from fencepost.errors import DatabaseUnavailable, LaunchConflict, LaunchRefused, RunNotFound
from fencepost.hot import weight
from fencepost.values import check_name
from fencepost.words import Source

if TYPE_CHECKING:
    import asyncpg

    from fencepost.planning import Definition, Plan
    from fencepost.settings import Settings

__all__ = ["Client", "Handle"]

In = TypeVar("In")
Out = TypeVar("Out")

NO_BOUND: Final = -1
_CLOSED: Final = "the client was closed while the launch was under way: start it again with the same id"
BOUNDED: Final = frozenset(
    {"api", "cron", "sql_listener"}
)  # law 30.7; an installation may set others: handles of unknown runs ask


class Client:
    """Starts runs of one release in one installation. Use it from one event loop; `close()` it, or use `async with`."""

    def __init__(self, db: Database, release: str = "dev", *, listen_dsn: str | None = None) -> None:
        self.db = db
        self.release = release
        self._lane: int | None = None
        self._desk = desk(db)
        self._ears = Ears(db, listen_dsn)

    @classmethod
    def from_settings(cls, settings: Settings | None = None, *, release: str | None = None) -> Self:
        """A client of the database that the settings name. Raises BadSettings, which names everything that is missing."""
        from fencepost.settings import read_settings, release_of

        settings = settings or read_settings()
        db = Database(settings.need_database_url(), settings.schema, name="fencepost client")
        return cls(db, release or release_of(settings), listen_dsn=settings.listen_url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. A launch that is under way ends in DatabaseUnavailable: start it again with the same id."""
        self._desk.stop(DatabaseUnavailable(_CLOSED))
        await self._ears.close()
        await self.db.close()

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
        self, workflow: Workflow[Any, Out], input: Any = None, /, *, id: str | None = None, org: str = "default",
        source: Source = "program", priority: int | None = None, delay: timedelta | float | None = None,
        conn: asyncpg.Connection | None = None,
    ) -> Handle[Out]:  # fmt: skip
        """Admit a run, once: the same id with the same launch gives the same run. Concurrent calls leave together.

        `id`: else `<workflow>-<32 hex>`. `delay`: seconds before it can be claimed. `conn`: inside your own transaction; rolled back,
        no run existed, and the claim bound of the source does not apply (30.8).
        Raises LaunchConflict, LaunchRefused, Unstorable (with the path; nothing has begun), SchemaMismatch, DatabaseUnavailable.
        """
        text = as_given(input, workflow.input_type) if workflow.takes_input or input is not None else "null"
        return await self.start_text(
            workflow, text, id=id, org=org, source=source, priority=priority, delay=delay, conn=conn
        )

    async def start_text(
        self, workflow: Workflow[Any, Out], text: str, /, *, id: str | None = None, org: str = "default", source: Source = "program",
        priority: int | None = None, delay: timedelta | float | None = None, conn: asyncpg.Connection | None = None,
        bounded: bool = True,
    ) -> Handle[Out]:  # fmt: skip
        """The same with the input as JSON text, kept as it is given: for callers that have text, and have judged it.

        `bounded` False: the claim bound of the source does not apply, as inside a transaction (30.7, 30.8).
        """
        run_id = id if id is not None else _new_id(workflow)
        judge_words(run_id, org, source)
        bounded = bounded and conn is None
        launch = await self._launch(workflow, text, run_id, org, source, priority, delay, bounded=bounded)
        if conn is None:
            answer = await self._desk.ask(launch, weight(text))
        else:
            answer = await admission.admit_on(self.db, conn, launch)
        self._judge(launch, answer)
        return Handle(self.db, self._ears, org, run_id, workflow.returns, bounded=bounded and source in BOUNDED)

    async def start_many(
        self, workflow: Workflow[In, Out], inputs: Iterable[In], /, *, ids: Sequence[str] | None = None, org: str = "default",
        source: Source = "program", priority: int | None = None, delay: timedelta | float | None = None,
    ) -> list[Handle[Out]]:  # fmt: skip
        """Admit many runs in few commits (at most 2 000 runs and 8 MiB in one); a handle each, in order.

        `ids`: one for each input. Every input is judged before the first is sent. When some of them are refused the others are
        admitted all the same, and the first refusal is raised: repeat the call with the same ids. Raises as `start` does.
        """
        texts = [as_given(value, workflow.input_type) for value in inputs]
        names = list(ids) if ids is not None else [_new_id(workflow) for _ in texts]
        if len(names) != len(texts):
            raise LaunchRefused(f"{len(texts)} inputs need as many ids, not {len(names)}")
        for name in names:
            judge_words(name, org, source)
        launches = [
            await self._launch(workflow, text, name, org, source, priority, delay, bounded=True)
            for name, text in zip(names, texts, strict=True)
        ]
        answers = await self._admit_batches(list(_batches(launches)))
        for launch, answer in zip(launches, answers, strict=True):
            self._judge(launch, answer)
        return [Handle(self.db, self._ears, org, name, workflow.returns, bounded=source in BOUNDED) for name in names]

    async def start_plan(
        self, plan: Plan | Definition, /, *, id: str | None = None, org: str = "default", source: Source = "program",
        priority: int | None = None, conn: asyncpg.Connection | None = None,
    ) -> Handle[Any]:  # fmt: skip
        """Admit a plan, once: the same id with the same plan gives the same run. `id`: else its name and 12 digits of its digest.

        Raises PlanInvalid (every fault), LaunchConflict, LaunchRefused, SchemaMismatch, DatabaseUnavailable.
        """
        from fencepost.client import planned
        from fencepost.planning import Definition

        definition = plan if isinstance(plan, Definition) else plan.definition()
        run_id = definition.run_id if id is None else id
        await planned.admit(
            self.db, definition, run_id=run_id, org=org, lane=await self.lane(), release=self.release, source=source,
            priority=priority, connection=conn,
        )  # fmt: skip
        return Handle(self.db, self._ears, org, run_id, Any, bounded=False)

    @overload
    def handle(self, run_id: str, /, *, org: str = "default", returns: Workflow[Any, Out]) -> Handle[Out]: ...
    @overload
    def handle(self, run_id: str, /, *, org: str = "default", returns: type[Out]) -> Handle[Out]: ...
    @overload
    def handle(self, run_id: str, /, *, org: str = "default", returns: None = None) -> Handle[Any]: ...
    def handle(
        self, run_id: str, /, *, org: str = "default", returns: Workflow[Any, Any] | type[Any] | None = None
    ) -> Handle[Any]:
        """A handle on a run by its id. `returns`: its workflow, or the type of its output; else JSON's own types.

        Whether there is such a run is asked when the handle is. Raises RunNotFound for what cannot be an id.
        """
        try:
            check_name(run_id, "a run's id")
            check_name(org, "an organisation")
        except ValueError:
            raise RunNotFound(run_id, org) from None
        type_: Any = returns.returns if isinstance(returns, Workflow) else Any if returns is None else returns
        return Handle(self.db, self._ears, org, run_id, type_)

    async def lane(self) -> int:
        """The lane that this client's runs ride, once the schema's version is asserted. Raises SchemaMismatch, LaneRefused."""
        if self._lane is None:
            await self.db.ready()
            self._lane = (await lanes.register(self.db, self.release)).lane
        return self._lane

    async def _launch(
        self, workflow: Workflow[Any, Any], text: str, run_id: str, org: str, source: Source, priority: int | None,
        delay: timedelta | float | None, *, bounded: bool,
    ) -> Launch:  # fmt: skip
        return Launch(
            org=org, id=run_id, name=workflow.name, lane=await self.lane(), release=self.release, input=text, source=source,
            priority=priority, on_lost=workflow.on_lost, claim_ms=None if bounded else NO_BOUND,
            delay_ms=None if delay is None else int(seconds(delay, "delay", zero=True) * 1000),
        )  # fmt: skip

    async def _admit_batches(self, batches: Sequence[Sequence[Launch]]) -> list[Admission]:
        """Each in a commit of its own, a few at a time: the server works on one while another is on its way. All are asked before one raises."""
        room = asyncio.Semaphore(limits.BULK_IN_FLIGHT)

        async def admit(batch: Sequence[Launch]) -> list[Admission]:
            async with room:
                return await admission.admit(self.db, batch)

        found = await asyncio.gather(*map(admit, batches), return_exceptions=True)
        for answer in found:
            if isinstance(answer, BaseException):
                raise answer
        return [one for answer in found if not isinstance(answer, BaseException) for one in answer]

    def _judge(self, launch: Launch, answer: Admission) -> None:
        match answer:
            case Admitted():
                return
            case Conflict():
                raise LaunchConflict(launch.id, answer.differs)
            case _:
                raise LaunchRefused(f"the database refused the id, organisation or name of run {launch.id!r}")


def _new_id(workflow: Workflow[Any, Any]) -> str:
    """What comes first is the time (in ms, 12 hex digits): so new ids stand beside each other in the index. Ids by chance, beside a million
    others, each write a page of their own into the WAL after every checkpoint.
    """
    return f"{workflow.name[:160]}-{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def _batches(launches: Sequence[Launch]) -> Iterable[list[Launch]]:
    batch: list[Launch] = []
    size = 0
    for launch in launches:
        more = weight(launch.input)
        if batch and (len(batch) == limits.BULK_RUNS_MAX or size + more > limits.COALESCE_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(launch)
        size += more
    if batch:
        yield batch

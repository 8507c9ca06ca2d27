"""Scenarios in which a client is killed: whoever admits, signals, cancels, forgets or migrates."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import asyncpg

from fencepost import retention, schema, suspension
from fencepost.client import Client
from fencepost.client.handle import Handle
from tests.crash import code, effects
from tests.crash.boundaries import Boundary, spot
from tests.crash.scenario import Case, Scenario, caller


class ClientScenario(Scenario):
    """A client is killed; the healer works meanwhile. What was acknowledged exists (I6)."""

    role = "client"
    healer_works = True

    async def done(self, case: Case) -> None:
        await asyncio.Event().wait()  # the client ends by itself

    async def at_kill(self, case: Case) -> None:
        for ack in [e for e in case.stage.noted(case.run) if e.word == "ack"]:
            assert await case.stage.state(ack.step) is not None, (
                f"{ack.step} was acknowledged, and there is no such run"
            )


async def admit(client: Client, workflow: Any, run: str, **how: Any) -> Handle[Any]:
    handle = await client.start(workflow, id=run, **how)
    effects_ack(run)
    return handle


def effects_ack(run: str) -> None:
    """In the process that may be killed: it was told that the run exists. The harness has no log of its own."""
    if effects._path is not None:
        effects.note("ack", run, run)


class Admits(ClientScenario):
    async def client(self, dsn: str, owner_dsn: str, run: str) -> Any:
        async with caller(dsn) as client:
            handle = await admit(client, self.workflow, run)
            return await handle.result(timeout=20)

    async def judge(self, case: Case) -> None:
        await super().judge(case)
        assert case.said == self.output, case.said

    def judge_effects(self, case: Case) -> None:
        self.again_words(case)
        super().judge_effects(case)

    @staticmethod
    def again_words(case: Case) -> None:
        """Nobody killed a worker: even a step that may be repeated was not."""
        counted = case.counted()
        assert all(n == 1 for (word, _), n in counted.items() if word in {"begin", "effect"}), counted


class ThreeCallers(Admits):
    async def client(self, dsn: str, owner_dsn: str, run: str) -> Any:
        async with caller(dsn) as one, caller(dsn) as two, caller(dsn) as three:
            handles = await asyncio.gather(*(admit(c, self.workflow, run) for c in (one, two, three)))
            results = await asyncio.gather(*(h.result(timeout=20) for h in handles))
            assert results[0] == results[1] == results[2], results
            return results[0]


class InTransaction(Admits):
    """One run in a transaction that is rolled back, one in a transaction that is committed."""

    async def client(self, dsn: str, owner_dsn: str, run: str) -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            async with caller(dsn) as client:
                transaction = connection.transaction()
                await transaction.start()
                await client.start(self.workflow, id=f"{run}/never", conn=connection)  # type: ignore[arg-type]  # any workflow
                spot("tx.rollback", "before")
                await transaction.rollback()
                spot("tx.rollback", "after")
                transaction = connection.transaction()
                await transaction.start()
                await client.start(self.workflow, id=run, conn=connection)  # type: ignore[arg-type]  # any workflow
                spot("tx.commit", "before")
                await transaction.commit()
                spot("tx.commit", "executed")
                effects_ack(run)
                spot("tx.commit", "after")
                return await client.handle(run).result(timeout=20)
        finally:
            connection.terminate()

    async def judge(self, case: Case) -> None:
        await super().judge(case)
        assert await case.stage.state(f"{case.run}/never") is None, "a run of a transaction that was rolled back exists"


class Signals(ClientScenario):
    """The client admits (unless `admitted`), and signals; its signals have ids, so that repeats are harmless."""

    waits_first = False
    signals: tuple[tuple[str, int], ...] = (("go", 7),)

    async def before(self, case: Case) -> None:
        if self.waits_first:
            await case.stage.client.start(self.workflow, id=case.run)  # type: ignore[arg-type]  # any workflow
            await case.stage.gate(True)
            await case.stage.until_parked(case.run)

    async def client(self, dsn: str, owner_dsn: str, run: str) -> Any:
        async with caller(dsn) as client:
            if not self.waits_first:
                await admit(client, self.workflow, run, delay=0.05)
            for name, value in self.signals:
                answer = await suspension.signal(client.db, "default", run, name, dedupe=f"{name}1", payload=str(value))
                assert answer in {"sent", "repeated"}, answer
            return None


class Cancels(ClientScenario):
    """The client cancels, in whatever state the run is."""

    reaches = "queued"  # the state in which the cancel finds it
    how: Mapping[str, Any] = MappingProxyType({})

    async def before(self, case: Case) -> None:
        stage = case.stage
        await stage.client.start(self.workflow, id=case.run, **self.how)  # type: ignore[arg-type]  # any workflow
        if self.healer_works:
            await stage.gate(True)
        if self.reaches == "begun":
            await stage.until_noted(case.run, "begin", "hold")
        elif self.reaches == "parked":
            await stage.until_parked(self.parked(case.run))
        elif self.reaches == "backing off":
            await stage.until(
                "select exists (select from watch.live where id = $1 and state = 'queued' and due_at is not null)",
                case.run,
            )

    @staticmethod
    def parked(run: str) -> str:
        return run

    async def client(self, dsn: str, owner_dsn: str, run: str) -> Any:
        async with caller(dsn) as client:
            answer = await client.handle(run).cancel("no more", grace=20)
            if effects._path is not None:
                effects.note("ack", run, run)
            assert answer == "accepted", answer
            return answer

    def judge_effects(self, case: Case) -> None:
        counted = case.counted()
        assert counted["effect", "hold"] == 0

    async def judge(self, case: Case) -> None:
        await super().judge(case)
        left = await case.stage.value(
            "select count(*) from watch.live where id = $1 or id like $1 || '/%'",
            case.run,
        )
        assert left == 0, "descendants live"


class CancelsTree(Cancels):
    @staticmethod
    def parked(run: str) -> str:
        return f"{run}/middle/1/leaf/1"

    async def judge(self, case: Case) -> None:
        await super().judge(case)
        for child in (f"{case.run}/middle/1", f"{case.run}/middle/1/leaf/1"):
            assert await case.stage.state(child) == "cancelled", child


class Retains(ClientScenario):
    """Retention forgets all that has ended and nothing that lives: a run whose child waits is there."""

    async def before(self, case: Case) -> None:
        stage = case.stage
        for table in ("outcome", "attempt", "event", "boundary", "row", "signal"):
            await stage.execute(f"alter table fencepost.{table} disable trigger user")
        await stage.client.start(code.spawning, id=case.run)
        await stage.gate(True)
        await stage.within(stage.settled(case.run), "the parent's end")
        await stage.until_parked(f"{case.run}/leaf/1")
        await stage.value("select pg_sleep(0.01)")

    async def client(self, dsn: str, owner_dsn: str, run: str) -> Any:
        async with caller(dsn) as client:
            for _ in range(2):
                await retention.retain(client.db, scratch_seconds=0, runs_seconds=0, most=100)
                spot("retained")
            return None

    def counts(self, boundary: Boundary) -> bool:
        return boundary.what in {"retain", ""} and boundary.n <= 2

    async def finish(self, case: Case) -> None:
        stage, leaf = case.stage, f"{case.run}/leaf/1"
        assert await stage.state(case.run) == "completed", "a run was forgotten, and its child lives"
        assert await stage.state(leaf) == "parked"
        await suspension.signal(stage.db, "default", leaf, "go", dedupe="1", payload="7")
        case.outcome = await stage.within(stage.settled(leaf), "the child's end")
        await stage.value("select pg_sleep(0.01)")
        await self.client(stage.dsn, stage.owner_dsn, case.run)
        assert await stage.state(case.run) is None
        assert await stage.state(leaf) is None
        for table in ("boundary", "signal", "attempt", "event", "late", "map"):
            assert not await stage.value(
                f"select count(*) from fencepost.{table} t where not exists (select from fencepost.run r where r.rid = t.rid)"
            ), table
        for table in ("outcome", "attempt", "event", "boundary", "row", "signal"):
            await stage.execute(f"alter table fencepost.{table} enable trigger user")

    def judge_outcome(self, case: Case) -> None:
        assert case.outcome is not None
        assert (case.outcome.status, case.outcome.output) == ("completed", "7"), case.outcome


class Told:
    """A connection that says where it is."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._n = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        if name not in {"execute", "executemany"}:
            return found

        async def told(*args: Any, **options: Any) -> Any:
            spot("sql.before", "migrate")
            answer = await found(*args, **options)
            spot("sql.executed", "migrate")
            return answer

        return told

    def transaction(self, **options: Any) -> Any:
        inner = self._connection.transaction(**options)

        class Transaction:
            async def __aenter__(self) -> None:
                await inner.__aenter__()

            async def __aexit__(self, *why: object) -> Any:
                spot("commit.before", "migrate")
                answer = await inner.__aexit__(*why)
                spot("commit.executed", "migrate")
                return answer

        return Transaction()


class Migrates(ClientScenario):
    """Whoever migrates is killed, while workers claim: another schema from nothing, and this one once more."""

    doubles = False

    async def before(self, case: Case) -> None:
        await case.stage.execute("drop schema if exists beside cascade")
        await case.stage.client.start(code.repeatable, id=case.run)
        await case.stage.gate(True)

    async def client(self, dsn: str, owner_dsn: str, run: str) -> Any:
        connection = await asyncpg.connect(owner_dsn)
        try:
            told: Any = Told(connection)
            await schema.migrate(told, "beside")
            await schema.migrate(told, "fencepost", roles=True, test=True)
            return None
        finally:
            connection.terminate()

    async def judge(self, case: Case) -> None:
        await super().judge(case)
        counts = await case.stage.rows(
            """select (select count(*) from pg_proc where pronamespace = n.oid) as functions,
                      (select count(*) from pg_class where relnamespace = n.oid) as relations
                 from pg_namespace n where n.nspname in ('beside', 'fencepost')"""
        )
        assert len(counts) == 2, counts
        assert counts[0] == counts[1], counts

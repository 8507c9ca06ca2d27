"""Oban for Python (3.12 and newer): it fetches in batches and acknowledges once a produce cycle."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from bench.system import Kind, Ready, System

CHUNK = 1000


class Oban(System):
    module = "oban"
    packages = ("oban", "psycopg")
    bulk = True
    tables = ("oban_jobs",)
    left_sql = "select 1 from oban_jobs where state in ('available','executing','retryable') limit 1"
    settings: ClassVar = {"limit": 500, "pool": 10}

    async def install(self) -> None:
        import psycopg
        from oban.schema import install_sql

        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            await connection.execute(install_sql())

    @classmethod
    def fill_sql(cls, pending: int, parked: int, ended: int, orgs: int) -> list[str]:
        now = "timezone('UTC', now())"
        return [
            f"""insert into oban_jobs(state, queue, worker, args, scheduled_at, completed_at)
                select '{state}', 'default', 'bench.Noop', '{{"i": 1}}', {at}, {done} from generate_series(1,{n})"""
            for n, state, at, done in (
                (ended, "completed", now, now),
                (parked, "scheduled", f"{now} + interval '30 days'", "null"),
                (pending, "available", now, "null"),
            )
            if n
        ]

    def _register(self) -> None:
        from oban import worker

        me = self

        class Noop:
            async def process(self, job: Any) -> None:
                me.board.hit(me.worker)

        class Lat:
            async def process(self, job: Any) -> None:
                me.board.stamp(job.args["i"])

        for cls in (Noop, Lat):  # a registered name that does not depend on where this file lies: fill_sql says it too
            cls.__module__, cls.__qualname__ = "bench", cls.__name__
            worker(queue="default")(cls)
        self.workers: dict[str, Any] = {"noop": Noop, "lat": Lat}

    async def open_client(self, callers: int) -> None:
        from oban import Oban as Library

        self._register()
        self.pool = await Library.create_pool(self.dsn, min_size=callers, max_size=callers)
        self.client = Library(pool=self.pool)

    async def close_client(self) -> None:
        await self.pool.close()

    async def enqueue(self, kind: Kind, arg: int | str, caller: int = 0) -> Any:
        return await self.client.enqueue(self.workers[kind].new({"i": arg}))

    async def enqueue_many(self, kind: Kind, args: list[int | str]) -> None:
        for at in range(0, len(args), CHUNK):
            await self.client.enqueue_many(*(self.workers[kind].new({"i": arg}) for arg in args[at : at + CHUNK]))

    async def work(self, ready: Ready) -> None:
        from oban import Oban as Library

        self._register()
        pool = await Library.create_pool(self.dsn, min_size=self.o["pool"], max_size=self.o["pool"])
        library = Library(pool=pool, queues={"default": self.o["limit"]})
        ready()
        async with library:
            await asyncio.Event().wait()

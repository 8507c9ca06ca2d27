"""PgQueuer with asyncpg: it dequeues in batches, logs completions in batches, and keeps no result."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from bench.system import Kind, Ready, System

CHUNK = 1000


class PgQueuer(System):
    module = "pgqueuer"
    packages = ("pgqueuer", "asyncpg")
    bulk = True
    tables = ("pgqueuer", "pgqueuer_log", "pgqueuer_statistics")
    left_sql = "select 1 from pgqueuer limit 1"
    settings: ClassVar = {"batch": 500}

    async def install(self) -> None:
        import asyncpg
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(self.dsn)
        await Queries.from_asyncpg_connection(connection).install()
        await connection.close()

    @classmethod
    def fill_sql(cls, pending: int, parked: int, ended: int, orgs: int) -> list[str]:
        made: list[str] = []
        if ended:  # an ended job leaves the queue; its trail is three rows of the log
            made.append(
                f"""insert into pgqueuer_log(job_id, status, priority, entrypoint, aggregated)
                select -g, s.s::pgqueuer_status, 0, 'noop', true
                  from generate_series(1,{ended}) g, unnest(array['queued','picked','successful']) s(s)"""
            )
        for n, at in ((parked, "now() + interval '30 days'"), (pending, "now()")):
            if n:
                made.append(
                    f"""insert into pgqueuer(priority, entrypoint, payload, status, execute_after)
                    select 0, 'noop', '\\x31', 'queued', {at} from generate_series(1,{n})"""
                )
        return made

    async def open_client(self, callers: int) -> None:
        import asyncpg
        from pgqueuer.queries import Queries

        self.pool = await asyncpg.create_pool(self.dsn, min_size=callers, max_size=callers)
        self.queries = Queries.from_asyncpg_pool(self.pool)

    async def close_client(self) -> None:
        await self.pool.close()

    async def enqueue(self, kind: Kind, arg: int | str, caller: int = 0) -> Any:
        return await self.queries.enqueue(kind, str(arg).encode(), 0)

    async def enqueue_many(self, kind: Kind, args: list[int | str]) -> None:
        for at in range(0, len(args), CHUNK):
            chunk = args[at : at + CHUNK]
            await self.queries.enqueue([kind] * len(chunk), [str(arg).encode() for arg in chunk], [0] * len(chunk))

    async def work(self, ready: Ready) -> None:
        import asyncpg
        from pgqueuer import PgQueuer as Worker

        logging.getLogger("pgqueuer").setLevel(logging.WARNING)
        board, me = self.board, self.worker
        worker = Worker.from_asyncpg_connection(await asyncpg.connect(self.dsn))

        @worker.entrypoint("noop")
        async def noop(job: Any) -> None:
            board.hit(me)

        @worker.entrypoint("lat")
        async def lat(job: Any) -> None:
            board.stamp(int(job.payload))

        ready()
        await worker.run(batch_size=self.o["batch"])

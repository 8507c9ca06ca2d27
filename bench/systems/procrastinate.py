"""Procrastinate: an asyncio worker, one fetch statement a job, LISTEN/NOTIFY."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from bench.system import Kind, Ready, System

CHUNK = 1000


class Procrastinate(System):
    module = "procrastinate"
    packages = ("procrastinate", "psycopg")
    bulk = True
    tables = ("procrastinate_jobs", "procrastinate_events")
    left_sql = "select 1 from procrastinate_jobs where status in ('todo','doing') limit 1"
    settings: ClassVar = {"concurrency": 5, "pool": 8}

    def _app(self, pool: int) -> Any:
        import procrastinate

        logging.getLogger("procrastinate").setLevel(logging.WARNING)
        app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=self.dsn, min_size=pool, max_size=pool)
        )
        me = self.worker

        @app.task(name="noop")
        async def noop(i: Any) -> None:
            self.board.hit(me)

        @app.task(name="lat")
        async def lat(i: int) -> None:
            self.board.stamp(i)

        self.tasks = {"noop": noop, "lat": lat}
        return app

    async def install(self) -> None:
        app = self._app(2)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    @classmethod
    def fill_sql(cls, pending: int, parked: int, ended: int, orgs: int) -> list[str]:
        made = ["set session_replication_role = replica"]
        for n, status, at in (
            (ended, "succeeded", "null"),
            (parked, "todo", "now() + interval '30 days'"),
            (pending, "todo", "null"),
        ):
            if n:
                made.append(
                    f"""insert into procrastinate_jobs(queue_name, task_name, args, status, scheduled_at)
                    select 'default', 'noop', '{{"i": 1}}', '{status}', {at} from generate_series(1,{n})"""
                )
        return [*made, "set session_replication_role = default"]

    async def open_client(self, callers: int) -> None:
        self.app = self._app(callers)
        await self.app.open_async()

    async def close_client(self) -> None:
        await self.app.close_async()

    async def enqueue(self, kind: Kind, arg: int | str, caller: int = 0) -> Any:
        return await self.tasks[kind].defer_async(i=arg)

    async def enqueue_many(self, kind: Kind, args: list[int | str]) -> None:
        for at in range(0, len(args), CHUNK):
            await self.tasks[kind].batch_defer_async(*({"i": arg} for arg in args[at : at + CHUNK]))

    async def work(self, ready: Ready) -> None:
        app = self._app(self.o["pool"])
        async with app.open_async():
            ready()
            await app.run_worker_async(concurrency=self.o["concurrency"], install_signal_handlers=False, wait=True)

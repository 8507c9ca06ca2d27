"""Chancy with the asyncio executor, eager polling and notifications."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

from bench.board import Board
from bench.system import Kind, Ready, System

_where: list[tuple[Board, int]] = []  # set by the worker


async def noop(*, i: Any) -> None:
    board, me = _where[0]
    board.hit(me)


async def lat(*, i: int) -> None:
    _where[0][0].stamp(i)


class Chancy(System):
    module = "chancy"
    packages = ("chancy", "psycopg")
    bulk = True
    tables = ("chancy_jobs",)
    left_sql = "select 1 from chancy_jobs where state in ('pending','running','retrying') limit 1"
    settings: ClassVar = {"concurrency": 1000, "poll": 5, "flush": 0.1}

    def _chancy(self, size: int) -> Any:
        from chancy import Chancy as Library

        log = logging.getLogger("chancy.bench")
        log.setLevel(logging.WARNING)
        return Library(self.dsn, min_connection_pool_size=1, max_connection_pool_size=size, log=log)

    def _job(self, kind: str, arg: int | str) -> Any:
        from chancy import Job

        return Job(func=f"bench.systems.chancy.{kind}", queue="q", kwargs={"i": arg})

    async def install(self) -> None:
        from chancy import Queue

        async with self._chancy(4) as library:
            await library.migrate()
            await library.declare(Queue(name="q", concurrency=100))

    @classmethod
    def fill_sql(cls, pending: int, parked: int, ended: int, orgs: int) -> list[str]:
        return [
            f"""insert into chancy_jobs(id, queue, func, kwargs, limits, meta, priority, max_attempts, state, scheduled_at, completed_at)
                select gen_random_uuid(), 'q', 'bench.systems.chancy.noop', '{{"i": 1}}', '[]', '{{}}', 0, 1, '{state}', {at},
                       case when '{state}' = 'succeeded' then now() end from generate_series(1,{n})"""
            for n, state, at in (
                (ended, "succeeded", "now()"),
                (parked, "pending", "now() + interval '30 days'"),
                (pending, "pending", "now()"),
            )
            if n
        ]

    async def open_client(self, callers: int) -> None:
        self.client = self._chancy(callers)
        await self.client.__aenter__()

    async def close_client(self) -> None:
        await self.client.__aexit__(None, None, None)

    async def enqueue(self, kind: Kind, arg: int | str, caller: int = 0) -> Any:
        return await self.client.push(self._job(kind, arg))

    async def enqueue_many(self, kind: Kind, args: list[int | str]) -> None:
        async for _ in self.client.push_many([self._job(kind, arg) for arg in args]):
            pass

    async def work(self, ready: Ready) -> None:
        from chancy import Chancy as Library
        from chancy import Queue, Worker

        _where[:] = [(self.board, self.worker)]
        async with self._chancy(10) as library:
            queue = Queue(
                name="q", concurrency=self.o["concurrency"], executor=Library.Executor.Async,
                polling_interval=self.o["poll"], eager_polling=True,
            )  # fmt: skip
            await library.declare(queue, upsert=True)
            ready()
            worker = Worker(library, register_signal_handlers=False)
            worker.send_outgoing_interval = self.o["flush"]
            async with worker:
                await asyncio.Event().wait()

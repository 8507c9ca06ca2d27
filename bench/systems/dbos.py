"""DBOS Transact. Its queues are polled every `poll` seconds (as it comes: 1.0); `most` is how much one worker takes at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, ClassVar

from bench.board import BEGAN
from bench.system import Kind, Ready, System

TABLES = "workflow_status workflow_input workflow_output operation_outputs notifications workflow_events workflow_events_history streams"
_DEFAULTS = {"most": 100, "poll": 1.0, "style": "async"}


class Dbos(System):
    module = "dbos"
    packages = ("dbos",)
    durable = events = polls = True
    loop = "asyncio"
    tables = tuple(f"dbos.{table}" for table in TABLES.split())
    left_sql = "select 1 from dbos.workflow_status where status in ('ENQUEUED','PENDING') and queue_name = 'q' limit 1"
    settings: ClassVar = {"most": 100, "poll": 0.02, "pool": 20, "style": "sync"}
    trial_settings: ClassVar = {
        "flows": {"most": 20, "poll": 0.05, "style": "async"},
        "latencies": _DEFAULTS,
        "idle": _DEFAULTS,
    }

    def _dbos(self) -> Any:
        from dbos import DBOS

        config: Any = {
            "name": "bench", "application_version": "bench", "log_level": "ERROR", "system_database_url": self.dsn,
            "sys_db_pool_size": self.o["pool"],
        }  # fmt: skip
        DBOS(config=config)
        return DBOS

    async def install(self) -> None:
        dbos = self._dbos()
        await asyncio.to_thread(dbos.launch)
        await asyncio.to_thread(dbos.destroy)
        await self.open_client(1)  # leaves an argument as the library writes it, for rows that SQL makes
        await self.enqueue("noop", 1)
        await self.close_client()
        import psycopg

        with psycopg.connect(self.dsn) as connection:
            connection.execute("create table bench_template as select inputs from dbos.workflow_input limit 1")

    @classmethod
    def fill_sql(cls, pending: int, parked: int, ended: int, orgs: int) -> list[str]:
        made: list[str] = []
        for n, status, column, value in (
            (ended, "SUCCESS", "completed_at", "1795966032642"),
            (parked, "DELAYED", "delay_until_epoch_ms", "9995966032642"),
            (pending, "ENQUEUED", "started_at_epoch_ms", "null"),
        ):
            if n:
                made.append(
                    f"""with ids as materialized (select gen_random_uuid()::text id from generate_series(1,{n})),
                    s as (insert into dbos.workflow_status(workflow_uuid, status, name, queue_name, serialization, {column}, application_version)
                          select id, '{status}', 'noop', 'q', 'py_pickle', {value}, 'bench' from ids)
                    insert into dbos.workflow_input(workflow_uuid, inputs)
                    select id, (select inputs from bench_template) from ids"""
                )
        if ended:
            made.append(
                """insert into dbos.workflow_output(workflow_uuid, output)
                   select workflow_uuid, 'gAROLg==' from dbos.workflow_status where status = 'SUCCESS'"""
            )
        return made

    async def open_client(self, callers: int) -> None:
        from dbos import DBOSClient

        self.client = DBOSClient(system_database_url=self.dsn, system_database_pool_size=max(callers, 2))

    async def close_client(self) -> None:
        self.client.destroy()

    def _enqueue(self, kind: str, arg: int | str) -> Any:
        return self.client.enqueue({"workflow_name": kind, "queue_name": "q"}, arg).workflow_id

    async def enqueue(self, kind: Kind, arg: int | str, caller: int = 0) -> Any:
        return self._enqueue(kind, arg)

    async def enqueue_load(self, kind: Kind, args: list[int | str], callers: int) -> None:
        lock, waiting = threading.Lock(), iter(args)

        def caller() -> None:
            while True:
                with lock:
                    arg = next(waiting, None)
                if arg is None:
                    return
                self._enqueue(kind, arg)

        threads = [threading.Thread(target=caller) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def parked(self, ident: Any, arg: int) -> bool:
        return self.board.at(BEGAN + arg) != 0  # recv() waits in memory: it has begun

    async def emit(self, ident: Any, arg: int) -> None:
        self.client.send(ident, {"x": 1}, topic="t")

    async def work(self, ready: Ready) -> None:
        dbos = self._dbos()
        if self.o["style"] == "async":
            self._register_async(dbos)
        else:
            self._register_sync(dbos)

        def start() -> None:
            dbos.launch()
            dbos.register_queue(
                "q", worker_concurrency=self.o["most"], polling_interval_sec=self.o["poll"], on_conflict="always_update"
            )

        await asyncio.to_thread(start)
        ready()
        await asyncio.Event().wait()

    def _register_async(self, dbos: Any) -> None:
        board, me = self.board, self.worker

        @dbos.step(name="s")
        async def one() -> int:
            return 1

        @dbos.workflow(name="noop")
        async def noop(i: Any) -> None:
            board.hit(me)

        @dbos.workflow(name="lat")
        async def lat(i: int) -> None:
            board.stamp(i)

        @dbos.workflow(name="steps")
        async def steps(i: int) -> None:
            for _ in range(10):
                await one()
            board.hit(me)

        @dbos.workflow(name="alone")
        async def alone(i: int) -> None:
            board.stamp(BEGAN + i)
            for _ in range(10):
                await one()
            board.stamp(i)

        @dbos.workflow(name="event")
        async def event(i: int) -> None:
            board.stamp(BEGAN + i)
            await dbos.recv_async("t", 60)
            board.stamp(i)

    def _register_sync(self, dbos: Any) -> None:
        board, me = self.board, self.worker

        @dbos.workflow(name="noop")
        def noop(i: Any) -> None:
            board.hit(me)

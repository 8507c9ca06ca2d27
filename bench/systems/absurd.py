"""Absurd. One AsyncAbsurd owns one connection, so several of them run in a worker process, each with its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, ClassVar

from bench.board import BEGAN
from bench.system import Kind, Ready, System

TABLES = "trcew"  # tasks, runs, checkpoints, events, waits


class Absurd(System):
    module = "absurd_sdk"
    packages = ("absurd-sdk", "absurdctl")
    durable = events = polls = True
    tables = tuple(f"absurd.{letter}_default" for letter in TABLES)
    left_sql = "select 1 from absurd.r_default where state in ('pending','running','sleeping') limit 1"
    settings: ClassVar = {"instances": 8, "concurrency": 500, "poll": 0.25}
    trial_settings: ClassVar = {
        "flows": {"concurrency": 50},
        "latencies": {"instances": 1, "concurrency": 10},
        "idle": {"instances": 1, "concurrency": 10},
        "backlog": {"instances": 4, "concurrency": 200},
    }

    async def install(self) -> None:
        ctl = Path(sys.executable).with_name("absurdctl")
        for words in (["init", "-d", self.dsn], ["create-queue", "-d", self.dsn, "default"]):
            process = await asyncio.create_subprocess_exec(ctl, *words, stdout=asyncio.subprocess.DEVNULL)
            if await process.wait() != 0:
                raise RuntimeError(f"absurdctl {words[0]} failed")

    @classmethod
    def fill_sql(cls, pending: int, parked: int, ended: int, orgs: int) -> list[str]:
        made: list[str] = []
        for n, state, available, output, completed in (
            (ended, "completed", "now() - interval '1 hour'", "'{}'::jsonb", "now() - interval '1 hour'"),
            (parked, "sleeping", "'infinity'", "null", "null"),
            (pending, "pending", "now()", "null", "null"),
        ):
            if n:
                made.append(
                    f"""with ids as materialized (
                      select absurd.portable_uuidv7() tid, absurd.portable_uuidv7() rid from generate_series(1,{n})),
                    t as (insert into absurd.t_default(task_id, task_name, params, state, attempts, last_attempt_run, completed_payload)
                          select tid, 'noop', '{{"i": 1}}', '{state}', 1, rid, {output} from ids)
                    insert into absurd.r_default(run_id, task_id, attempt, state, available_at, completed_at, wake_event)
                    select rid, tid, 1, '{state}', {available}, {completed},
                           case when '{state}' = 'sleeping' then 'ev' || rid end from ids"""
                )
        return made

    async def open_client(self, callers: int) -> None:
        from absurd_sdk import AsyncAbsurd

        self.lanes = [AsyncAbsurd(self.dsn, queue_name="default") for _ in range(callers)]
        for lane in self.lanes:
            await lane._ensure_connected()  # noqa: SLF001 - else the first call of each would connect

    async def close_client(self) -> None:
        for lane in self.lanes:
            await lane.close()

    async def enqueue(self, kind: Kind, arg: int | str, caller: int = 0) -> Any:
        return (await self.lanes[caller].spawn(kind, {"i": arg}, queue="default"))["task_id"]

    async def parked(self, ident: Any, arg: int) -> bool:
        seen = await self.lanes[0].fetch_task_result(str(ident))
        return seen is not None and seen.state == "sleeping"

    async def emit(self, ident: Any, arg: int) -> None:
        await self.lanes[0].emit_event(f"ev-{arg}", {"x": 1})

    def _register(self, app: Any) -> None:
        board, me = self.board, self.worker

        async def one() -> int:
            return 1

        @app.register_task(name="noop")
        async def noop(params: Any, ctx: Any) -> None:
            board.hit(me)

        @app.register_task(name="lat")
        async def lat(params: Any, ctx: Any) -> None:
            board.stamp(params["i"])

        @app.register_task(name="steps")
        async def steps(params: Any, ctx: Any) -> None:
            for k in range(10):
                await ctx.step(f"s{k}", one)
            board.hit(me)

        @app.register_task(name="alone")
        async def alone(params: Any, ctx: Any) -> None:
            board.stamp(BEGAN + params["i"])
            for k in range(10):
                await ctx.step(f"s{k}", one)
            board.stamp(params["i"])

        @app.register_task(name="event")
        async def event(params: Any, ctx: Any) -> None:
            await ctx.await_event(f"ev-{params['i']}")
            board.stamp(params["i"])

    async def work(self, ready: Ready) -> None:
        from absurd_sdk import AsyncAbsurd

        apps = []
        for _ in range(self.o["instances"]):
            app = AsyncAbsurd(self.dsn, queue_name="default")
            self._register(app)
            await app._ensure_connected()  # noqa: SLF001 - the same
            apps.append(app)
        ready()
        await asyncio.gather(
            *(
                app.start_worker(
                    worker_id=f"w{self.worker}-{k}", concurrency=self.o["concurrency"], poll_interval=self.o["poll"]
                )
                for k, app in enumerate(apps)
            )
        )

"""Fencepost, as a program of its users has it: an app, its client, its worker."""

from __future__ import annotations

from typing import Any, ClassVar

from bench.board import BEGAN, Board
from bench.system import Kind, Ready, System
from bench.systems import us_plans
from fencepost import App, Context, Handle, Workflow

app = App("bench")
_where: list[tuple[Board, int]] = []  # set by the worker; the handlers of a process write to one board


@app.step(repeatable=True)
async def add(a: int, b: int) -> int:
    return a + b


@app.step()
async def add_marked(a: int, b: int) -> int:
    return a + b


@app.step(repeatable=True)
async def add_row(row: dict[str, int]) -> int:
    board, me = _where[0]
    board.hit(me)
    return row["n"] + 1


@app.workflow()
async def noop(ctx: Context, arg: int | str | None) -> int | str | None:
    board, me = _where[0]
    board.hit(me)
    return arg


@app.workflow()
async def lat(ctx: Context, arg: int) -> None:
    _where[0][0].stamp(arg)


@app.workflow()
async def steps(ctx: Context, arg: int) -> int:
    board, me = _where[0]
    total = 0
    for n in range(10):
        total = await ctx.step(add, total, n)
    board.hit(me)
    return total


@app.workflow()
async def marked(ctx: Context, arg: int) -> int:
    board, me = _where[0]
    total = 0
    for n in range(10):
        total = await ctx.step(add_marked, total, n)
    board.hit(me)
    return total


@app.workflow()
async def alone(ctx: Context, arg: int) -> None:
    board, _ = _where[0]
    board.stamp(BEGAN + arg)
    total = 0
    for n in range(10):
        total = await ctx.step(add, total, n)
    board.stamp(arg)


@app.workflow()
async def event(ctx: Context, arg: int) -> None:
    await ctx.wait_for("go", int)
    _where[0][0].stamp(arg)


@app.workflow()
async def rows(ctx: Context, n: int) -> int:
    return len(await ctx.map(add_row, [{"n": i} for i in range(n)], key="n", concurrency=256))


KINDS: dict[Kind, Workflow[Any, Any]] = {
    "noop": noop, "lat": lat, "steps": steps, "marked": marked, "alone": alone, "event": event, "rows": rows,
}  # fmt: skip


class Us(System):
    module = "fencepost"
    imports = "import fencepost, fencepost.client"
    packages = ("fencepost", "asyncpg")
    durable = events = bulk = drains = True
    tables = tuple(
        f"fencepost.{table}"
        for table in (
            "run task outcome attempt boundary map row signal late event watcher sleeper "
            "plan step definition edge binding result handoff process"
        ).split()
    )
    left_sql = "select 1 from fencepost.task limit 1"
    settings: ClassVar = {"concurrency": 500, "collector": "as `fencepost worker` sets it"}
    trial_settings: ClassVar = {"latencies": {"concurrency": 100}, "idle": {"concurrency": 100}}  # as they come

    async def install(self) -> None:
        import asyncpg

        from fencepost import lanes
        from fencepost.db import Database
        from fencepost.schema import migrate

        connection = await asyncpg.connect(self.dsn)
        await migrate(connection, "fencepost")
        await connection.close()
        db = Database(self.dsn)
        await lanes.register(db, "dev")
        await db.close()

    @classmethod
    def fill_sql(cls, pending: int, parked: int, ended: int, orgs: int) -> list[str]:
        from bench.systems.us_rows import statements

        return statements(pending, parked, ended, orgs)

    async def open_client(self, callers: int) -> None:
        from fencepost import Client
        from fencepost.db import Database

        self.client = Client(Database(self.dsn))

    async def close_client(self) -> None:
        await self.client.close()

    async def enqueue(self, kind: Kind, arg: int | str, caller: int = 0) -> Handle[Any]:
        if kind in us_plans.KINDS:
            return await self.client.start_plan(us_plans.plan_of(kind, int(arg)))
        return await self.client.start(KINDS[kind], arg)

    async def enqueue_many(self, kind: Kind, args: list[int | str]) -> None:
        if kind in us_plans.KINDS:
            await self.enqueue_load(kind, args, 1)
            return
        await self.client.start_many(KINDS[kind], args)

    async def parked(self, ident: Handle[Any], arg: int) -> bool:
        return await ident.status() == "parked"

    async def emit(self, ident: Handle[Any], arg: int) -> None:
        await ident.signal("go", 1)

    async def work(self, ready: Ready) -> None:
        from fencepost.cli.place import spare_collector
        from fencepost.settings import read_settings
        from fencepost.worker.loop import run_worker

        spare_collector()  # as `fencepost worker` does
        _where[:] = [(self.board, self.worker)]
        assert self.files is not None
        settings = read_settings({"FENCEPOST_FILES": str(self.files)}, dsn=self.dsn)
        await run_worker(
            app, settings, stop=self.stopping, concurrency=self.o["concurrency"], on_ready=lambda _: ready()
        )

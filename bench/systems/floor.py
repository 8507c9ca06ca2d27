"""The floor: a bare asyncio worker with group commit. No retries, cancellation, versions or guards: what one process could do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

from bench.board import BEGAN
from bench.system import Kind, Ready, System

CLAIM = """with c as (select id from floor.ready where owner is null order by prio, id limit $1 for update skip locked),
  u as (update floor.ready q set owner = 7, lease = now() + interval '30 s' from c where q.id = c.id returning q.id)
  select r.id, r.name, r.args from u join floor.runs r on r.id = u.id"""
ENQUEUE = """with r as (insert into floor.runs(name, args) select n, a from unnest($1::text[], $2::bytea[]) v(n, a) returning id)
  insert into floor.ready(id) select id from r returning id"""
DONE = """with d as (delete from floor.ready where id = any($1::bigint[]) returning id)
  update floor.runs r set state = 1, finished = now(), result = v.res
    from unnest($1::bigint[], $2::bytea[]) v(id, res), d where r.id = v.id and d.id = v.id"""
STEP = "insert into floor.steps(run, seq, result) select * from unnest($1::bigint[], $2::int[], $3::bytea[])"
EVENT = "with e as (insert into floor.events values ($1, '\\x31') on conflict do nothing) select pg_notify('floor', 'e' || $1)"
CHUNK = 1000


class Group:
    """Group commit in the client: while one statement is in flight later calls gather, and the next carries them all."""

    def __init__(
        self, send: Callable[[Any, list[Any]], Awaitable[Any]], connections: list[Any], most: int = 500
    ) -> None:
        self._send, self._free, self._most = send, list(connections), most
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, item: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((item, answer))
        if self._free and len(self._waiting) == 1:
            loop.call_soon(self._kick)  # the rest of this turn adds its own first
        return answer

    def _kick(self) -> None:
        while self._free and self._waiting:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            task = asyncio.ensure_future(self._run(self._free.pop(), batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, connection: Any, batch: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        try:
            answers = await self._send(connection, [item for item, _ in batch])
            for k, (_, answer) in enumerate(batch):
                answer.set_result(answers[k] if answers else None)
        except Exception as error:
            for _, answer in batch:
                answer.set_exception(error)
        self._free.append(connection)
        self._kick()


async def _write(connection: Any, items: list[tuple[Any, ...]]) -> None:
    steps = [item for item in items if len(item) == 3]
    done = [item for item in items if len(item) == 2]
    if steps:
        await connection.execute(STEP, *map(list, zip(*steps, strict=True)))
    if done:
        await connection.execute(DONE, *map(list, zip(*done, strict=True)))


class Floor(System):
    module = "asyncpg"
    packages = ("asyncpg",)
    durable = events = bulk = True
    tables = ("floor.runs", "floor.ready", "floor.steps", "floor.events", "floor.waits")
    left_sql = "select 1 from floor.ready limit 1"
    settings: ClassVar = {"inflight": 500, "batch": 250, "poll": 5.0}

    async def install(self) -> None:
        import asyncpg

        connection = await asyncpg.connect(self.dsn)
        await connection.execute(Path(__file__).with_suffix(".sql").read_text())
        await connection.close()

    @classmethod
    def fill_sql(cls, pending: int, parked: int, ended: int, orgs: int) -> list[str]:
        made: list[str] = []
        runs = "insert into floor.runs(name, args) select 'noop', '\\x31' from generate_series(1,{n}) returning id"
        if ended:
            made.append(
                f"insert into floor.runs(name, args, state, finished) select 'noop', '\\x31', 1, now() from generate_series(1,{ended})"
            )
        if parked:
            made.append(
                f"with r as ({runs.format(n=parked)}) insert into floor.waits(run, name) select id, 'e' || id from r"
            )
        if pending:
            made.append(f"with r as ({runs.format(n=pending)}) insert into floor.ready(id) select id from r")
        return made

    async def open_client(self, callers: int) -> None:
        import asyncpg

        self.connection = await asyncpg.connect(self.dsn)

        async def send(connection: Any, items: list[Any]) -> list[int]:
            made = await connection.fetch(ENQUEUE, *map(list, zip(*items, strict=True)))
            await connection.execute("select pg_notify('floor', 'q')")  # after the commit: see NOTIFY's global lock
            return [row[0] for row in made]

        self.group = Group(send, [self.connection])

    async def close_client(self) -> None:
        await self.connection.close()

    async def enqueue(self, kind: Kind, arg: int | str, caller: int = 0) -> Any:
        return await self.group((kind, str(arg).encode()))

    async def enqueue_many(self, kind: Kind, args: list[int | str]) -> None:
        for at in range(0, len(args), CHUNK):
            chunk = args[at : at + CHUNK]
            await self.connection.fetch(ENQUEUE, [kind] * len(chunk), [str(arg).encode() for arg in chunk])
        await self.connection.execute("select pg_notify('floor', 'q')")

    async def parked(self, ident: Any, arg: int) -> bool:
        return bool(await self.connection.fetchval("select 1 from floor.waits where run = $1", ident))

    async def emit(self, ident: Any, arg: int) -> None:
        await self.connection.execute(EVENT, f"ev-{arg}")

    async def work(self, ready: Ready) -> None:
        import asyncpg

        listener, self.claim, self.aux, writer = [await asyncpg.connect(self.dsn) for _ in range(4)]
        self.wake = asyncio.Event()
        self.waits: dict[str, asyncio.Future[None]] = {}
        self.write = Group(_write, [writer])
        self.turn = asyncio.Lock()  # of aux: a connection carries one statement at a time
        self.slots = asyncio.Semaphore(self.o["inflight"])

        def hear(_connection: Any, _pid: int, _channel: str, said: Any) -> None:
            if said[0] != "e":
                self.wake.set()
            elif (wait := self.waits.pop(said[1:], None)) is not None and not wait.done():
                wait.set_result(None)

        await listener.add_listener("floor", hear)
        ready()
        async with asyncio.TaskGroup() as runs:  # one that breaks ends the worker, which says why
            while True:
                for row in await self._claim():
                    runs.create_task(self._run(*row))

    async def _claim(self) -> list[Any]:
        """What there is, up to the free slots; waits for a slot, and for a hint where there is nothing."""
        await self.slots.acquire()
        room = 1
        while room < self.o["batch"] and not self.slots.locked():
            await self.slots.acquire()
            room += 1
        self.wake.clear()
        rows: list[Any] = await self.claim.fetch(CLAIM, room)
        for _ in range(room - len(rows)):
            self.slots.release()
        if not rows:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), self.o["poll"])
        return rows

    async def _steps(self, run: int) -> None:
        for k in range(10):
            await self.write((run, k, b"1"))

    async def _run(self, run: int, kind: str, args: bytes) -> None:
        match kind:
            case "noop":
                self.board.hit(self.worker)
            case "lat":
                self.board.stamp(int(args))
            case "steps":
                await self._steps(run)
                self.board.hit(self.worker)
            case "alone":
                self.board.stamp(BEGAN + int(args))
                await self._steps(run)
                self.board.stamp(int(args))
            case _:
                await self._event(run, int(args))
        await self.write((run, b"1"))
        self.slots.release()
        if kind == "event":
            async with self.turn:  # the next one may be parking already
                await self.aux.execute("delete from floor.waits where run = $1", run)

    async def _event(self, run: int, arg: int) -> None:
        name = f"ev-{arg}"
        wait = self.waits[name] = asyncio.get_running_loop().create_future()
        async with self.turn:
            await self.aux.execute("insert into floor.waits values ($1, $2)", run, name)
        await wait
        async with self.turn:
            await self.aux.fetchval("select payload from floor.events where name = $1", name)
        self.board.stamp(arg)

"""What is measured, each as one function of a place that gives {figure: value}."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable

from bench.place import Place, worker
from fencepost import admission, suspension
from fencepost.admission import Launch
from fencepost.client import Client

Figures = dict[str, float]
Measure = Callable[[Place, bool], Awaitable[Figures]]


def launches(where: Place, name: str, n: int) -> list[Launch]:
    root = uuid.uuid4().hex
    return [
        Launch(org="default", id=f"{name}-{root}-{i}", name=name, lane=where.lane.lane, release="dev", input="null")
        for i in range(n)
    ]


async def _rate(n: int, work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return n / (time.perf_counter() - started)


async def _one_by_one(where: Place, todo: list[Launch]) -> None:
    for launch in todo:
        await admission.admit(where.db, [launch])


async def admissions(where: Place, quick: bool, /) -> Figures:
    """A: enqueue with 1 caller, with 16 callers through the client, and in bulk."""
    from bench.flows import noop

    n = 1000 if quick else 5000
    one = await _rate(n, _one_by_one(where, launches(where, "noop", n)))
    client = Client(where.db)

    async def caller() -> None:
        for _ in range(n // 4):
            await client.start(noop)

    sixteen = await _rate(16 * (n // 4), asyncio.gather(*(caller() for _ in range(16))))

    async def bulk() -> None:
        todo = launches(where, "noop", 10 * n)
        for at in range(0, len(todo), 2000):
            await admission.admit(where.db, todo[at : at + 2000])

    return {"A": one, "A16": sixteen, "Abulk": await _rate(10 * n, bulk())}


async def _drain(where: Place, name: str, n: int, per_run: int) -> tuple[float, float, float]:
    """Rate, the worker's CPU in µs, and WAL bytes, each per run or step."""
    await where.admin.execute(
        "truncate fencepost.task, fencepost.run, fencepost.event, fencepost.outcome, fencepost.attempt, fencepost.boundary"
    )
    todo = launches(where, name, n)
    for at in range(0, n, 2000):
        await admission.admit(where.db, todo[at : at + 2000])
    await where.admin.execute("analyze")
    async with worker(where) as process:
        while await where.ended() < n // 20:
            await asyncio.sleep(0.005)
        begun, cpu, (wal, _), started = (
            await where.ended(),
            process.cpu_seconds(),
            await where.server_figures(),
            time.perf_counter(),
        )
        while (ended := await where.ended()) < n * 19 // 20:
            await asyncio.sleep(0.01)
        seconds, done = time.perf_counter() - started, (ended - begun) * per_run
        cpu, after = process.cpu_seconds() - cpu, (await where.server_figures())[0]
    return done / seconds, cpu / done * 1e6, (after - wal) / done


async def drains(where: Place, quick: bool, /) -> Figures:
    """B: no-op runs; C: workflows of ten steps, repeatable and marked; one worker process."""
    n = 4000 if quick else 20000
    b, cpu_run, wal_run = await _drain(where, "noop", n, 1)
    c, cpu_step, _ = await _drain(where, "ten", n // 10, 10)
    marked, _, _ = await _drain(where, "ten_marked", n // 10, 10)
    return {"B": b, "C": c, "Cmarked": marked, "cpu_run_us": cpu_run, "cpu_step_us": cpu_step, "wal_run_b": wal_run}


async def latencies(where: Place, quick: bool, /) -> Figures:
    """D: from the admit call's return to the end of a no-op run, and from a signal's return to the end of the run that waited;
    a lone workflow's time per step. One idle worker."""
    from bench.flows import noop, ten, waiter

    n = 50 if quick else 200
    starts: list[float] = []
    wakes: list[float] = []
    alone: list[float] = []
    client = Client(where.db)
    async with worker(where):
        for _ in range(n):
            handle = await client.start(noop)
            began = time.perf_counter()
            await handle.result()
            starts.append((time.perf_counter() - began) * 1000)
        for _ in range(n):
            handle = await client.start(waiter)
            while (await handle.status()) != "parked":
                await asyncio.sleep(0.001)
            await suspension.signal(where.db, "default", handle.id, "go", dedupe="1", payload="1")
            began = time.perf_counter()
            await handle.result()
            wakes.append((time.perf_counter() - began) * 1000)
        for _ in range(n // 4):
            handle = await client.start(ten)
            await handle.result()
            row = await where.admin.fetchrow(
                "select extract(epoch from max(o.ended_at) - min(e.at)) * 1000 as ms from fencepost.run r join fencepost.event e on e.rid = r.rid "
                "and e.type = 'attempt.claimed' join fencepost.outcome o on o.rid = r.rid where r.id = $1",
                handle.id,
            )
            alone.append(float(row["ms"]) / 10)
    return {
        "Dstart_ms": statistics.median(starts),
        "Dwake_ms": statistics.median(wakes),
        "Calone_ms": statistics.median(alone),
    }


async def idle(where: Place, quick: bool, /) -> Figures:
    """F: transactions per second of one idle worker, its heartbeat's among them."""
    seconds = 12 if quick else 40
    async with worker(where):
        await asyncio.sleep(2)
        _, before = await where.server_figures()
        await asyncio.sleep(seconds)
        _, after = await where.server_figures()
    return {"F": max(0, after - before - 2) / seconds}


async def imports(_: Place, quick: bool, /) -> Figures:
    """G: what `import fencepost` costs a process."""
    code = (
        "import time, resource; t = time.perf_counter(); import fencepost, fencepost.client; "
        "print((time.perf_counter() - t) * 1000, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    runs: list[list[float]] = []
    for _ in range(5):
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        said, _ = await child.communicate()
        runs.append([float(word) for word in said.split()])
    return {
        "Gimport_ms": statistics.median(r[0] for r in runs),
        "Grss_mb": statistics.median(r[1] for r in runs),
    }


MEASURES: tuple[Measure, ...] = (admissions, drains, latencies, idle, imports)

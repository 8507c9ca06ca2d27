"""`python -m bench.child SYSTEM ROLE [words]`: one process of one system. It says JSON lines; the runner reads them.

A child lives no longer than the runner: it reads its stdin, which the runner holds, and ends when that ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import statistics
import sys
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from bench.board import BEGAN, Board
from bench.system import System
from bench.systems import SYSTEMS, system_class

PROBE_SECONDS: Final = 60.0


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def rss_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def percentile(values: list[float], p: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(p / 100 * (len(ordered) - 1)))]


def summary(nanoseconds: list[int]) -> dict[str, float]:
    """In milliseconds."""
    values = [n / 1e6 for n in nanoseconds]
    return {"n": len(values), "p50": percentile(values, 50), "p99": percentile(values, 99), "max": max(values)}


def payloads(words: argparse.Namespace, n: int) -> list[int | str]:
    return ["x" * words.size for _ in range(n)] if words.size else list(range(n))


async def until(stamped: Any, what: str) -> None:
    """Wait until `stamped()`. Raises TimeoutError."""
    end = time.monotonic() + PROBE_SECONDS
    while not stamped():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {PROBE_SECONDS:g} s")
        await asyncio.sleep(0.001)  # waits: the board is shared memory, nobody rings


async def install(system: System, words: argparse.Namespace) -> None:
    await system.install()
    say(ok=True)


async def enqueue(system: System, words: argparse.Namespace) -> None:
    """`n` enqueues after some that are not timed; `bulk`: by the library's bulk call."""
    await system.open_client(words.callers)
    if words.bulk:
        await system.enqueue_many(words.kind, payloads(words, min(200, words.n)))
    else:
        await system.enqueue_load(words.kind, payloads(words, max(20, min(200, words.n // 5))), words.callers)
    args = payloads(words, words.n)
    began = time.perf_counter()
    if words.bulk:
        await system.enqueue_many(words.kind, args)
    else:
        await system.enqueue_load(words.kind, args, words.callers)
    seconds = time.perf_counter() - began
    await system.close_client()
    say(n=words.n, seconds=seconds, rate=words.n / seconds)


async def fill(system: System, words: argparse.Namespace) -> None:
    """Exactly `n`, as fast as it goes, not timed."""
    await system.open_client(16)
    args: list[int | str] = [words.rows] * words.n if words.rows else payloads(words, words.n)
    if system.bulk:
        await system.enqueue_many(words.kind, args)
    else:
        await system.enqueue_load(words.kind, args, 16)
    await system.close_client()
    say(n=words.n)


async def burst(system: System, words: argparse.Namespace) -> None:
    """`warm` enqueues one by one, as a quiet service has them; when all were handled, `n` at once. Says when it began."""
    await system.open_client(1)
    for arg in payloads(words, words.warm):
        await system.enqueue(words.kind, arg)
    await until(lambda: system.board.total() >= words.handled + words.warm, "the warm-up")
    began = time.monotonic_ns()
    await system.enqueue_many(words.kind, payloads(words, words.n))
    await system.close_client()
    say(began=began)


async def probe(system: System, words: argparse.Namespace) -> None:
    """Start latency: from the enqueue's return to the handler's first line; and a lone workflow of ten steps."""
    await system.open_client(1)
    gap = max(words.gap, system.o["poll"]) if system.polls else words.gap
    waited: list[int] = []
    for i in range(words.n + 5):
        # Over exactly one poll period, so that a poller is met at every phase.
        await asyncio.sleep(random.uniform(gap * 0.5, gap * 1.5))  # waits: the gap between probes is what is meant
        await system.enqueue("lat", i)
        began = time.monotonic_ns()
        await until(lambda i=i: system.board.at(i), "the handler")
        if i >= 5:
            waited.append(system.board.at(i) - began)
    alone: list[int] = []
    for i in range(1000, 1000 + words.alone if system.durable else 1000):
        await system.enqueue("alone", i)
        await until(lambda i=i: system.board.at(i), "the workflow")
        alone.append((system.board.at(i) - system.board.at(BEGAN + i)) // 10)
    await system.close_client()
    say(start=summary(waited), alone=statistics.median(alone) / 1e6 if alone else None)


async def wake(system: System, words: argparse.Namespace) -> None:
    """Wake latency: from the event's return to the line after the wait, of a task that was seen parked."""
    await system.open_client(1)
    gap = max(words.gap, system.o["poll"]) if system.polls else words.gap
    waited: list[int] = []
    for i in range(2000, 2000 + words.n + 3):
        ident = await system.enqueue("event", i)
        end = time.monotonic() + PROBE_SECONDS
        while not await system.parked(ident, i):
            if time.monotonic() > end:
                raise TimeoutError("the task did not park")
            await asyncio.sleep(0.02)  # waits: a park rings nobody outside
        await asyncio.sleep(random.uniform(gap * 0.5, gap * 1.5))  # waits: see above
        await system.emit(ident, i)
        began = time.monotonic_ns()
        await until(lambda i=i: system.board.at(i), "the wake")
        if i >= 2003:
            waited.append(system.board.at(i) - began)
    await system.close_client()
    say(wake=summary(waited))


async def worker(system: System, words: argparse.Namespace) -> None:
    """A worker until SIGTERM."""
    loop = asyncio.get_running_loop()
    working = loop.create_task(system.work(lambda: say(ready=time.monotonic_ns(), rss=rss_mb(), pid=os.getpid())))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, system.stopping.set)
    stopping = loop.create_task(system.stopping.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if system.drains and not working.done():
        await asyncio.wait({working}, timeout=30)
    if working.done() and not working.cancelled() and (error := working.exception()) is not None:
        print(repr(error), file=sys.stderr, flush=True)
    say(rss_peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    os._exit(0)  # some libraries' threads and pools take seconds to end, which nobody measures


ROLES: Final = {
    "install": install, "enqueue": enqueue, "fill": fill, "burst": burst, "probe": probe, "wake": wake, "worker": worker,
}  # fmt: skip


def info(cls: type[System]) -> None:
    """Whether the library is here, and which."""
    try:
        __import__(cls.module)
        say(versions={package: version(package) for package in cls.packages})
    except (ImportError, PackageNotFoundError) as error:
        say(missing=str(error))


def _end_with_the_runner() -> None:
    # Not through sys.stdin: an interpreter that ends while a thread waits in there cannot take its lock, and aborts.
    while os.read(0, 4096):
        pass
    os._exit(1)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("system", choices=list(SYSTEMS))
    made.add_argument("role", choices=["info", *ROLES])
    made.add_argument("--dsn", default="")
    made.add_argument("--board", type=Path)
    made.add_argument("--files", type=Path)
    made.add_argument("--trial", default="")
    made.add_argument("--kind", default="noop")
    made.add_argument("--bulk", action="store_true")
    made.add_argument("--gap", type=float, default=0.15)
    for word, default in (("worker", 0), ("n", 0), ("callers", 1), ("warm", 0), ("handled", 0), ("alone", 0)):
        made.add_argument(f"--{word}", type=int, default=default)
    made.add_argument("--size", type=int, default=0, help="characters of each argument; 0: a number")
    made.add_argument(
        "--rows", type=int, default=0, help="the argument: of a map, how many rows; of a plan, how many steps"
    )
    return made


def main() -> None:
    words = parser().parse_args()
    cls = system_class(words.system)
    if words.role == "info":
        info(cls)
        return
    threading.Thread(target=_end_with_the_runner, daemon=True).start()

    async def go() -> None:
        system = cls(words.dsn, Board(words.board), words.worker, words.trial, words.files)
        await ROLES[words.role](system, words)

    if cls.loop == "uvloop":
        with contextlib.suppress(ImportError):
            import uvloop

            uvloop.run(go())
            return
    asyncio.run(go())


if __name__ == "__main__":
    main()

"""A worker as a process, for tests that stop, starve and kill one.

Code says what it did in a file outside the database (EFFECTS): the truth about whether it ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from fencepost import App, Context
from fencepost.settings import read_settings
from fencepost.worker.loop import run_worker

app = App("roads", release="dev")


def effect(*words: object) -> None:
    """One line, appended whole."""
    line = " ".join(str(word) for word in words) + "\n"
    descriptor = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@app.step(repeatable=True)
async def note(word: str) -> str:
    effect("note", word, os.getpid())
    return word


@app.step(repeatable=True)
async def hold(word: str) -> str:
    """Runs until the process is killed, cancelled or told by a file."""
    effect("hold", word, os.getpid())
    try:
        while not Path(os.environ["EFFECTS"] + ".go").exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.02)  # waits: a file, which tells nobody
    except asyncio.CancelledError:
        effect("cancelled", word, os.getpid())
        raise
    effect("held", word, os.getpid())
    return word


@app.step(repeatable=True)
async def resist(word: str) -> str:
    """Goes on for 1.5 s after it was cancelled, whoever asks."""
    effect("hold", word, os.getpid())
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    end = time.monotonic() + 1.5
    while (left := end - time.monotonic()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(left)  # waits: on purpose, as author code should not
    return word


@app.step(repeatable=True)
async def block(seconds: float) -> None:
    """Blocks the loop."""
    effect("block", os.getpid())
    time.sleep(seconds)  # waits: on purpose, as author code should not


@app.step(repeatable=True)
async def grip(seconds: float) -> None:
    """Holds the interpreter: no thread of this process runs meanwhile."""
    effect("grip", os.getpid())
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@app.step(timeout=0.3, repeatable=True)
def hang(word: str) -> None:
    """A thread that nobody can stop."""
    effect("hang", word, os.getpid())
    threading.Event().wait()


@app.step(scope="org", epoch="one", repeatable=True)
async def lent(word: str) -> str:
    """As `hold`, for the whole organisation."""
    await hold(word)
    return f"{word} by {os.getpid()}"


@app.step(scope="org", epoch="one")
async def lent_once(word: str) -> str:
    """The same, and not repeatable."""
    return await lent(word)


@app.workflow()
async def lending(ctx: Context, word: str) -> str:
    return await ctx.step(lent, word)


@app.workflow()
async def lending_once(ctx: Context, word: str) -> str:
    return await ctx.step(lent_once, word)


@app.workflow()
async def quick(ctx: Context, word: str) -> str:
    return await ctx.step(note, word)


@app.workflow()
async def holding(ctx: Context, word: str) -> str:
    await ctx.step(note, word)
    return await ctx.step(hold, word)


@app.workflow(on_lost="ask")
async def careful(ctx: Context, word: str) -> str:
    return await ctx.step(hold, word)


@app.workflow()
async def blocking(ctx: Context, seconds: float) -> str:
    await ctx.step(block, seconds)
    await ctx.step(grip, seconds)
    return "done"


@app.workflow()
async def napping(ctx: Context, seconds: float) -> str:
    await ctx.sleep("nap", seconds)
    return await ctx.step(note, "woken")


@app.workflow()
async def tidying(ctx: Context, word: str) -> str:
    """Code that takes a cancellation for something that happened."""
    try:
        return await ctx.step(hold, word)
    except asyncio.CancelledError:
        return "given up"
    finally:
        await ctx.step(note, "tidied")


@app.workflow()
async def resisting(ctx: Context, word: str) -> str:
    return await ctx.step(resist, word)


@app.workflow()
async def hanging(ctx: Context, word: str) -> None:
    await ctx.step(hang, word)


async def main() -> int:
    stop, hurry = asyncio.Event(), asyncio.Event()

    def told() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told)
    working = run_worker(
        app, read_settings(), stop=stop, hurry=hurry, concurrency=int(os.environ.get("CONCURRENCY", "100")),
        threads=int(os.environ.get("THREADS", "2")), grace_seconds=float(os.environ.get("GRACE", "20")),
        on_ready=lambda lane: effect("ready", lane.name, os.getpid()),
    )  # fmt: skip
    if "BREAKS" not in os.environ:
        return await working
    broken = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, broken.set)
    beside = asyncio.ensure_future(working)
    await broken.wait()
    raise RuntimeError(f"the program broke beside {beside}")


if __name__ == "__main__":
    sys.executable = os.environ.get("HEARTBEAT_PYTHON", sys.executable)
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(levelname)s %(message)s")
    if os.environ.get("LOOP") == "uvloop":
        import uvloop

        sys.exit(uvloop.run(main()))
    sys.exit(asyncio.run(main()))

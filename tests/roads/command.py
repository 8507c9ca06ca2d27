"""The real command as a process, and a module of workflows for it, as a user has them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCEPOST = Path(sys.executable).with_name("fencepost")
SOON = 60.0  # seconds: far more than any wait here takes, so that a hang fails instead of hanging

MODULE = """
import asyncio
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from fencepost import App, Context

app = App("shop")
other = App("other")
HERE = Path(__file__).parent


class Order(BaseModel):
    n: int
    note: str | None = None


@app.step(repeatable=True)
async def double(n: int) -> int:
    return n * 2


@app.step()
async def charge(n: int) -> int:
    with (HERE / "charged").open("a") as book:
        book.write(f"{n}\\n")
    if (HERE / "hang").exists():
        (HERE / "hanging").touch()
        await asyncio.Event().wait()
    return n


@app.workflow()
async def order(ctx: Context, given: Order) -> int:
    return await ctx.step(double, given.n)


@app.workflow()
async def nothing(ctx: Context) -> None:
    return None


@app.workflow()
async def fails(ctx: Context, n: int) -> int:
    raise ValueError("out of\\n\\x1b[31mstock")


@app.workflow()
async def review(ctx: Context, n: int) -> dict[str, int]:
    first = await ctx.step(double, n)
    return {"first": first, "said": await ctx.wait_for("review", int)}


@app.workflow()
async def naps(ctx: Context, n: int) -> int:
    await ctx.sleep("nap", timedelta(hours=1))
    return n


@app.workflow()
async def pays(ctx: Context, n: int) -> int:
    return await ctx.step(charge, n)


@app.workflow()
async def pays_rows(ctx: Context, rows: list[dict[str, int]]) -> list[int]:
    return await ctx.map(charge_row, rows, key="n")


@app.step()
async def charge_row(row: dict[str, int]) -> int:
    if row["n"] == 2:
        raise ValueError("no such row")
    return row["n"]
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command did: exit code, data, words."""

    code: int
    out: str
    err: str

    @property
    def object(self) -> Any:
        """The last line of stdout."""
        return json.loads(self.out.splitlines()[-1])

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Shop:
    """A directory with `shop.py`, and the command run in it."""

    def __init__(self, place: Path, dsn: str | None) -> None:
        self.place = place
        (place / "shop.py").write_text(MODULE)
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(("FENCEPOST_", "PG"))}
        self.environ |= {
            "FENCEPOST_LEASE_SECONDS": "9",
            "FENCEPOST_HEARTBEAT_SECONDS": "0.5",
            "FENCEPOST_FILES": str(place / "files"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if dsn is not None:
            self.environ["FENCEPOST_DATABASE_URL"] = dsn

    async def start(self, *args: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            FENCEPOST, *args, cwd=self.place, env=self.environ, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def __call__(self, *args: str, stdin: bytes = b"") -> Said:
        """Run a command to its end. No traceback, whatever it was."""
        said = await ended(await self.start(*args), stdin)
        assert "Traceback" not in said.err, said.err
        return said

    @asynccontextmanager
    async def worker(self, *args: str, target: str | None = "shop:app") -> AsyncIterator[asyncio.subprocess.Process]:
        """A worker that is ready, `target` None: without an app; drained at the end unless it is gone by then."""
        process = await self.start("worker", *([target] if target else []), *args)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(SOON):
                line = await process.stdout.readline()
            assert line.startswith(b"ready lane="), (line, await process.stderr.read() if process.stderr else b"")
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await ended(process)


async def ended(process: asyncio.subprocess.Process, stdin: bytes = b"") -> Said:
    async with asyncio.timeout(SOON):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return Said(process.returncode, out.decode(), err.decode())


async def until_says(process: asyncio.subprocess.Process, words: str) -> str:
    """Read stderr until a line holds `words`; everything read so far."""
    assert process.stderr is not None
    read = b""
    async with asyncio.timeout(SOON):
        while words.encode() not in read:
            line = await process.stderr.readline()
            assert line, (words, read.decode())
            read += line
    return read.decode()

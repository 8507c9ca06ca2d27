"""A worker's module for tests that kill it: rows of a CSV file, each begun at most once, each beginning told outside the database."""

from __future__ import annotations

import asyncio
import os

from fencepost import App, Context, Csv

app = App("tables", release="dev")


def effect(word: str) -> None:
    """One line, appended whole."""
    descriptor = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{word}\n".encode())
    os.close(descriptor)


@app.step()
async def pay(row: dict[str, str]) -> dict[str, str]:
    effect(row["ident"])
    await asyncio.sleep(int(row["ident"][1:]) % 7 / 1000)  # waits: so that at every instant rows are in flight
    return {"receipt": f"for {row['ident']}"}


@app.workflow()
async def payday(ctx: Context) -> dict[str, object]:
    table = os.environ["TABLE"]
    mapped = await ctx.map(pay, Csv(table), key="ident", concurrency=20, out=f"{table}.out.csv")
    assert mapped.out is not None
    return {"completed": mapped.completed, "sha256": mapped.out.sha256}

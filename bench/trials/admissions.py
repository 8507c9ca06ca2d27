"""A: enqueue. One caller, sixteen in one process, and the bulk call."""

from __future__ import annotations

from bench.field import Side


async def admissions(side: Side) -> dict[str, float]:
    """Durable enqueues a second, each call returning after its commit."""
    sizes = side.sizes
    found = {
        "A1": (await side.run("enqueue", n=sizes.one, callers=1))["rate"],
        "A16": (await side.run("enqueue", n=sizes.sixteen, callers=16))["rate"],
    }
    if side.cls.bulk:
        await side.reset()
        found["Abulk"] = (await side.run("enqueue", n=sizes.bulk, bulk=True))["rate"]
    return found

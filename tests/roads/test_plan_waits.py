"""`fencepost plan run` while its plan waits: for a retry's hour, and for other code."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.roads.command import Shop
from tests.roads.planned import write

TWICE = """
from pathlib import Path
from fencepost import App, Context

app = App("twice")


@app.workflow()
async def second(ctx: Context) -> None:
    if not Path("tried").exists():
        Path("tried").touch()
        raise RuntimeError("the first try fails")
"""


@pytest.mark.parametrize(
    "step", ['command = ["sh", "-c", "exit $((2 - FENCEPOST_ATTEMPT))"]', 'workflow = "twice:second"']
)
async def test_a_retry_comes_after_its_delay_not_after_the_next_heartbeat(shop: Shop, step: str) -> None:
    """70.7, 60.9 Of whatever kind the step is."""
    shop.environ |= {"FENCEPOST_LEASE_SECONDS": "90", "FENCEPOST_HEARTBEAT_SECONDS": "30"}
    write(shop, "twice.py", TWICE)
    text = f'name = "again"\n[[step]]\nid = "a"\n{step}\n'
    write(shop, "again.toml", text + 'retry = { max_attempts = 2, initial_delay_ms = 300, on = ["failure"] }\n')
    said = await shop("plan", "run", "again.toml", "--here", "--json", "--events")
    assert said.code == 0, said.err
    at = {(event["type"], event["data"].get("try")): event["at"] for event in said.lines[:-1]}
    waited, started = (datetime.fromisoformat(at[key]) for key in (("plan.step_waiting", 1), ("plan.step_started", 2)))
    assert 0.3 <= (started - waited).total_seconds() < 15


SIGNED = """
from fencepost import App, Context

app = App("signed")


@app.step(repeatable=True)
async def {step}() -> int:
    return 1


@app.workflow()
async def sign(ctx: Context) -> int:
    await ctx.step({step})
    return await ctx.wait_for("go", int)
"""


async def test_a_plan_that_waits_for_other_code_is_left_with_4(shop: Shop) -> None:
    """50.4, 70.14 All that moves of it is a workflow whose history does not fit: nobody sits before it until it does."""
    write(shop, "signed.py", SIGNED.format(step="draw"))
    write(shop, "sign.toml", 'name = "sign"\n[[step]]\nid = "a"\nworkflow = "signed:sign"\n')
    run = ("plan", "run", "sign.toml", "--id", "s1", "--here", "--json")
    assert (await shop(*run, "--timeout", "6s")).code == 4
    assert (await shop("runs", "signal", "s1/a/1", "go", "7")).code == 0
    write(shop, "signed.py", SIGNED.format(step="paint"))
    said = await shop(*run)
    assert (said.code, said.object["status"]) == (4, "running"), said
    assert "a: its workflow waits for other code: fencepost runs explain s1/a/1" in said.err
    write(shop, "signed.py", SIGNED.format(step="draw"))
    said = await shop(*run)
    assert (said.code, said.object["steps"]["a"]["outputs"]["result"]["value"]) == (0, 7)

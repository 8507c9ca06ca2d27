"""The wire is cut at every statement of a step's attempt, before the server gets it and after it has committed (B80)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.crash.proxy import Plan, Proxy
from tests.races.plans_stage import Yard, by_id, yard
from tests.support_plans import admit, chain, counted, kill, step, until

__all__ = ["yard"]

pytestmark = pytest.mark.timeout(180)

WORKER = "fencepost worker"
ACTS = ("before", "after")


@pytest.fixture
async def proxy(yard: Yard) -> AsyncIterator[Proxy]:
    async with Proxy(yard.stage.dsn) as made:
        yield made


async def test_a_statement_that_is_cut_runs_no_command_twice(yard: Yard, proxy: Proxy) -> None:
    stage = yard.stage
    await yard.worker(dsn=proxy.dsn)
    await admit(stage, "counted", chain(2))
    await yard.ended("counted")
    asked = {door: proxy.counts[door] for door in ("begin_steps", "finish_attempts")}
    assert asked == {"begin_steps": 2, "finish_attempts": 2}
    for door, most in {"claim_attempts": 1, **asked}.items():
        for n in range(1, most + 1):
            for act in ACTS:
                run = f"{door}-{n}-{act}"
                cut = proxy.plan(Plan(door, n, act, of=WORKER))
                await admit(stage, run, chain(2))
                document = await yard.ended(run)
                assert cut.done.is_set(), f"never hit: {run}"
                proxy.forget()
                assert document["status"] == "completed", (run, document)
                assert {found["number"] for found in document["steps"]} == {1}, run
                for id in ("k00", "k01"):
                    assert counted(stage, run)["begin", id] == 1, (run, id)
    assert not await stage.rows("select from fencepost.attempt where ended in ('lost', 'given_back')")


@pytest.mark.parametrize("door", ["claim_orphans", "read_process", "finish_attempts"])
async def test_an_adoption_that_is_cut_goes_on(yard: Yard, proxy: Proxy, door: str) -> None:
    stage = yard.stage
    for act in ACTS:
        first = await yard.worker()
        held = step("held", code=until(yard.go.with_name(act)))
        await admit(stage, act, [held, step("next", "held")])
        await yard.begun(act, "held")
        await stage.dismiss(first)
        cut = proxy.plan(Plan(door, 1, act, of=WORKER))
        second = await yard.worker(dsn=proxy.dsn)
        await yard.held_by(f"{act}/held/1", second)
        yard.go.with_name(act).touch()
        document = await yard.ended(act)
        assert cut.done.is_set(), f"never hit: {door} {act}"
        assert document["status"] == "completed", document
        assert by_id(document)["held"]["number"] == 1
        assert counted(stage, act)["begin", "held"] == 1
        await stage.dismiss(second)


async def test_a_proof_of_death_that_is_cut_charges_one_loss(yard: Yard, proxy: Proxy) -> None:
    stage = yard.stage
    await yard.worker(dsn=proxy.dsn)
    for act in ACTS:
        go = yard.go.with_name(act)
        await admit(stage, act, [step("held", code=until(go), on_lost="replay")])
        await yard.begun(act, "held")
        cut = proxy.plan(Plan("lose_step", 1, act, of=WORKER))
        kill((await yard.pids(act))[0])
        async with asyncio.timeout(20):
            await cut.done.wait()
        await yard.begun(act, "held", 2)
        go.touch()
        document = await yard.ended(act)
        assert (document["status"], by_id(document)["held"]["number"]) == ("completed", 2)
        assert (await yard.events(act)).count("attempt.lost") == 1

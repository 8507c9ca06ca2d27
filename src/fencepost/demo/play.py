"""The play itself: three workers, two kills, one review, and the count at the end."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator
from typing import Any, Final

from fencepost import explain, ledger, schema
from fencepost.client import Client, Handle
from fencepost.client.ears import Ear
from fencepost.db import Database
from fencepost.demo import facts
from fencepost.demo.crew import Crew
from fencepost.demo.facts import Kill
from fencepost.demo.stage import Stage
from fencepost.demo.story import Story
from fencepost.demo.trouble import CannotRun, WentWrong
from fencepost.errors import FencepostError, RunCancelled, RunFailed, RunUnknown
from fencepost.words import TERMINAL

COMPLETED: Final = "it completed"
REVIEW: Final = '{"ok": true}'
CANCEL_SECONDS: Final = 5.0


async def play(stage: Stage, story: Story) -> dict[str, Any]:
    """Play it on this stage; the object of the last line. Raises CannotRun, WentWrong, and what the database raises."""
    async with _installation(stage, story) as db, _press(stage) as press:
        client = Client(db, stage.release, listen_dsn=stage.settings.listen_url)
        handle: Handle[str] | None = None
        try:
            handle = await _admit(stage, story, client, press.url)
            async with Crew(stage, _ending(handle)) as crew:
                kills = [await _kill_in_the_map(stage, story, crew)]
                kills += [await _kill_in_the_effect(story, crew, handle, press)]
                await _look_up(story, crew)
            try:
                return await _count(stage, story, handle, press, kills)
            except OSError as error:
                raise WentWrong(f"what was recorded cannot be counted: {error}") from error
        finally:
            if handle is not None:
                await _leave_nothing(handle)
            await client.close()


# ── the set ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def _installation(stage: Stage, story: Story) -> AsyncGenerator[Database]:
    """The database; an embedded home is migrated first, somebody else's never is."""
    db = Database(stage.dsn, stage.settings.schema, name="fencepost demo")
    try:
        if stage.home is not None:
            async with db.connection() as connection:
                await schema.migrate(connection, stage.settings.schema)
        await db.ready()
        where = (
            f"the embedded PostgreSQL of {stage.home}"
            if stage.home is not None
            else "the one that FENCEPOST_DATABASE_URL names"
        )
        story.tell("database", where)
        yield db
    finally:
        await db.close()


@contextlib.asynccontextmanager
async def _press(stage: Stage) -> AsyncGenerator[Any]:
    """The press, which prints the first post and keeps its answer to itself until it is told to let it go."""
    press = stage.example.press.Press(stage.posts, hold_first=True)
    try:
        await press.start()
    except OSError as error:
        raise CannotRun(f"the press cannot listen on 127.0.0.1: {error.strerror or error}") from error
    try:
        yield press
    finally:
        await press.stop()


async def _admit(stage: Stage, story: Story, client: Client, url: str) -> Handle[str]:
    airports = stage.example.app
    sheet = airports.Sheet(str(stage.example.work.AIRPORTS), url, str(stage.result), str(stage.begun))
    handle: Handle[str] = await client.start(airports.enrich, sheet, id=stage.run_id)
    story.tell("run", f"{handle.id} is in the queue: {_wanted(stage)} airports")
    return handle


def _wanted(stage: Stage) -> int:
    return len(stage.example.work.read_rows(stage.example.work.AIRPORTS))


# ── the acts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _kill_in_the_map(stage: Stage, story: Story, crew: Crew) -> Kill:
    """Worker 1 stops where a third of the rows is kept, says so, and is killed."""
    rows = _wanted(stage)
    worker = await crew.start(pause=f"row.kept:{rows // 3}")
    story.tell("worker 1", f"pid {worker.pid} takes it and works, {stage.example.app.CONCURRENCY} rows at a time")
    report = await crew.until(worker, "a third of the rows was kept", crew.reached(worker))
    await crew.kill(worker)
    kill = Kill(worker.number, worker.pid, f"row {report['n']} of {rows} kept")
    begun = len(facts.read_begins(stage.begun).count)
    story.tell("KILLED", f"pid {kill.pid} by SIGKILL: {kill.boundary}, {begun} begun")
    story.aside("elsewhere", "all rows again, or a run that hangs until some time-out")
    return kill


async def _kill_in_the_effect(story: Story, crew: Crew, handle: Handle[str], press: Any) -> Kill:
    """Worker 2 finishes the map; the run waits for its review, publishes, and the worker is killed before it hears the answer."""
    worker = await crew.start()
    story.tell("worker 2", f"pid {worker.pid} sees that the first is gone, and does the rows that are not kept")
    await crew.until(worker, "the run waited for its review", _parked(handle))
    document = await _document(handle)
    done = document["rows"]
    story.tell(
        "parked",
        f"{done['completed']} of {done['total']} rows kept. The run waits for a review and holds nothing meanwhile. This sends one:",
    )
    story.verbatim(explain.command(document, "signal", "review", shlex.quote(REVIEW)))
    await handle.signal("review", {"ok": True})
    await crew.until(worker, "the post was printed", press.posted.wait())
    boundary = await _inside(handle)
    await crew.kill(worker)
    press.release()
    kill = Kill(worker.number, worker.pid, boundary)
    story.tell("KILLED", f"pid {kill.pid} by SIGKILL: {kill.boundary}")
    story.aside("elsewhere", "posted a second time, or stuck without a word")
    return kill


async def _inside(handle: Handle[str]) -> str:
    """Where the attempt is, by the ledger: inside a step that is marked, begun and not kept."""
    marked = [step["name"] for step in (await _document(handle))["steps"] if step["state"] == "marked"]
    if len(marked) != 1:
        raise WentWrong(f"one step should be marked while the press holds its answer, not {marked}")
    return f"inside {marked[0]}: posted, the reply not received"


async def _look_up(story: Story, crew: Crew) -> None:
    """Worker 3 finds the mark, asks the look-up, and ends the run."""
    worker = await crew.start()
    story.tell(
        "worker 3",
        f"pid {worker.pid} finds publish begun and its outcome unknown. It does not post: it asks the press",
    )
    ending = await crew.until_ended(worker)
    if ending != COMPLETED:
        raise WentWrong(ending)
    story.tell("completed", "the press has the post: what publish returned is known, and the file is written")
    await crew.send_home(worker)


async def _parked(handle: Handle[str]) -> None:
    """Until the run waits, and no worker holds it. Its status is asked for: 6 000 events about rows are not wanted here."""
    ear = Ear(None)
    while await handle.status() != "parked":
        await ear.wait()
    if (await _document(handle))["task"]["park"] != "wait":
        raise WentWrong(await handle.explain())


async def _ending(handle: Handle[str]) -> str:
    """How the run ends, once it has."""
    try:
        await handle.result()
    except (RunFailed, RunCancelled, RunUnknown) as error:
        return f"{error}; see `fencepost runs explain {handle.id}`"
    return COMPLETED


async def _document(handle: Handle[str]) -> dict[str, Any]:
    found = await ledger.read_run(handle.db, handle.org, handle.id)
    assert found is not None, "it was admitted a moment ago"
    return found


# ── the count ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _count(stage: Stage, story: Story, handle: Handle[str], press: Any, kills: list[Kill]) -> dict[str, Any]:
    """What happened, by what was recorded; `ok` only if all of it is as it must be."""
    example = stage.example
    rows = example.work.read_rows(example.work.AIRPORTS)
    begins = facts.read_begins(stage.begun)
    document = await _document(handle)
    once_only = [step.name for step in example.app.app.registry.steps.values() if not step.repeatable]
    resolved = facts.resolutions(await facts.read_ledger(handle.db, handle.org, handle.id), once_only)
    found: dict[str, Any] = {
        "rows": document["rows"]["completed"],
        "rows_done_once": begins.once,
        "rows_rerun": begins.again,
        "effects": press.effects(),
        "unknown": len(resolved),
        "resolved_by": ", ".join(sorted({how for how in resolved.values() if how is not None})) or None,
        "kills": [kill.as_json() for kill in kills],
        "output_sha256": facts.sha256(stage.result),
    }
    # The same work by its plain functions, without any of this.
    plain = example.app.write(
        str(stage.scratch / "expected.jsonl"), "/posts/1", [example.work.locate(row) for row in rows]
    )
    found["ok"] = (
        document["status"] == "completed"
        and found["rows"] == document["rows"]["total"] == len(rows)
        and set(begins.count) == {row["icao"] for row in rows}
        and begins.again <= example.app.CONCURRENCY
        and max(begins.count.values()) <= len(kills) + 1
        and found["effects"] == 1
        and len(resolved) == 1
        and found["resolved_by"] == "lookup"
        and set(press.asked) == set(facts.read_keys(stage.posts))
        and len(kills) == 2
        and found["output_sha256"] == plain
    )
    _sum_up(stage, story, found)
    return found


def _sum_up(stage: Stage, story: Story, found: dict[str, Any]) -> None:
    story.title(
        f"\n{found['rows']} rows: {found['rows_done_once']} were begun once, {found['rows_rerun']} again (those under way at the kill, "
        f"at most {stage.example.app.CONCURRENCY}).\n"
        f"{found['effects']} post on the press, {found['unknown']} outcome that nobody knew, resolved by {found['resolved_by']}.\n"
        f"See for yourself, in {stage.scratch}: posts.jsonl, begun.log, located.jsonl\n"
        f"{'All of it as promised.' if found['ok'] else 'NOT as promised: this is a bug, please report the line below.'}"
    )


async def _leave_nothing(handle: Handle[str]) -> None:
    """A run that was left half-way is cancelled, as far as the database still answers."""
    with contextlib.suppress(FencepostError, TimeoutError, OSError):
        async with asyncio.timeout(CANCEL_SECONDS):
            if await handle.status() not in TERMINAL:
                await handle.cancel("the demo was left", grace=0)

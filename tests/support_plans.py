"""Plans whose commands say outside the database what they did, and what must be true of them whatever was done to their workers.

Each command notes in the log of effects that it began, what it was handed (by the digest of the bytes in its folder), and that it is
done, each time with the name of its attempt's folder; what it hands on is a text that no other execution has.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from fencepost import plans
from fencepost.planning.model import TEXT, CommandStep, Definition, Handoff, Need, OnLost, Output, StepRetry
from tests.crash import effects
from tests.crash.stage import Stage

# begin, saw …, then what the step is about, then effect and said: each a line that is appended whole.
OPENING = r"""
folder=${FENCEPOST_PACKET%/*}
note() { echo "$1 $FENCEPOST_RUN/$FENCEPOST_STEP/$FENCEPOST_ATTEMPT $FENCEPOST_STEP $2 $$" >> "$EFFECTS"; }
note begin "${folder##*/}"
set -- "$folder"/inputs/*
if [ -e "$1" ]; then
  sha256sum "$@" | while read -r sum path; do note saw "${folder##*/}:${path##*/}:sha256:$sum"; done
fi
"""
CLOSING = r"""
read -r said < /proc/sys/kernel/random/uuid
note effect "${folder##*/}"
note said "${folder##*/}:$said"
echo "$said"
"""
SAID = {"said": Output(from_="stdout", media_type=TEXT)}
BULK = SAID | {"bulk": Output(from_="file", path="bulk", media_type=TEXT)}  # too large for a row


def step(
    id: str, *needs: str, code: str = "", on_lost: OnLost = "fail", outputs: dict[str, Output] = SAID, **how: Any
) -> CommandStep:
    """A command that is handed what it needs, and says what it does. `code`: shell, between its beginning and its effect."""
    return CommandStep(
        id=id, needs=tuple(map(Need, needs)), on_lost=on_lost, outputs=outputs, command=("sh", "-c", braced(OPENING + code + CLOSING)),
        handoffs=tuple(Handoff(id=need, input=need, step=need, output="said") for need in needs), **how,
    )  # fmt: skip


def braced(code: str) -> str:
    """Shell in which no brace is a template's."""
    return code.replace("{", "{{").replace("}", "}}")


def until(file: Path) -> str:
    """Shell that goes on when the file is there."""
    return f"until [ -e '{file}' ]; do sleep 0.02; done"


def retried(most: int, delay_ms: int = 0) -> StepRetry:
    return StepRetry(max_attempts=most, initial_delay_ms=delay_ms)


DIAMOND = (("a",), ("b", "a"), ("c", "a"), ("d", "a"), ("e", "b", "c"), ("f", "c", "d"), ("g", "e", "f"))


def diamond(**how: Any) -> list[CommandStep]:
    """Seven steps: one, three, two, one."""
    return [step(*names, **how) for names in DIAMOND]


def fan(width: int, **how: Any) -> list[CommandStep]:
    """One, many side by side, one."""
    many = [f"m{n:02}" for n in range(width)]
    return [step("first", **how), *(step(id, "first", **how) for id in many), step("last", *many, **how)]


def chain(length: int, **how: Any) -> list[CommandStep]:
    ids = [f"k{n:02}" for n in range(length)]
    return [step(id, *ids[n - 1 : n] if n else (), **how) for n, id in enumerate(ids)]


async def admit(stage: Stage, run: str, steps: list[CommandStep], *, most: int = 4) -> None:
    """Admit a plan of these steps. Whatever they do, they note it in the stage's log."""
    noting = tuple(msgspec.structs.replace(one, env=one.env | {"EFFECTS": str(stage.effects)}) for one in steps)
    lane = await stage.client.lane()
    answer = await plans.admit(
        stage.db, org="default", run_id=run, name="harness", lane=lane, release="dev", source="api",
        definition=Definition(name="harness", max_concurrency=most, steps=noting).canonical,
    )  # fmt: skip
    assert answer.answer in {"created", "replayed"}, answer


def begins(stage: Stage, run: str, id: str) -> int:
    """How often a step's command began, in all its tries and attempts."""
    return sum(e.word == "begin" and e.step == id for e in stage.noted(run))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


ATTEMPTS = """
select c.id as child, p.number, p.folder, p.pid from fencepost.process p join fencepost.run c using (rid) join fencepost.run r on r.rid = c.parent
 where r.id = $1 order by p.begun_at"""
RESULTS = """
select s.id as step, q.name, q.digest, q.size, q.text, c.id as child, x.folder
  from fencepost.run r join fencepost.step s on s.rid = r.rid join fencepost.result q on q.rid = s.rid and q.step = s.no
  join fencepost.run c on c.rid = q.child join fencepost.outcome o on o.rid = q.child
  join fencepost.process x on x.rid = q.child and x.number = o.number where r.id = $1"""
HANDED = """
select c.id as child, h.number, h.input, h.digest from fencepost.handoff h join fencepost.run c using (rid) join fencepost.run r on r.rid = c.parent
 where r.id = $1 and h.mode <> 'none'"""


async def judge(stage: Stage, run: str) -> dict[str, Any]:
    """I1–I4, I10, I12, I16 of a plan that has ended: from the log of effects against the tables. The plan's document."""
    noted = [e for e in stage.noted(run) if e.run != run]
    document = await plans.read(stage.db, "default", run)
    assert document is not None, run
    attempts = {Path(row["folder"]).name: row["child"] for row in await stage.rows(ATTEMPTS, run)}
    for word in ("begin", "effect"):
        often = Counter(e.key for e in noted if e.word == word)
        assert all(n == 1 for n in often.values()), f"more than one {word} of an attempt: {often}"
        strange = {e.key for e in noted if e.word == word and attempts.get(e.key) != e.run}
        assert not strange, f"{word} of attempts that nobody has on record: {strange}"
    said = dict(e.key.split(":", 1) for e in noted if e.word == "said")
    committed: dict[tuple[str, str], str] = {}
    for row in await stage.rows(RESULTS, run):
        committed[row["step"], row["name"]] = row["digest"]
        if row["name"] == "said":
            name = Path(row["folder"]).name
            assert row["text"] == f"{said[name]}\n", "what was committed is what another attempt said"
            assert row["digest"] == f"sha256:{hashlib.sha256(row['text'].encode()).hexdigest()}"
    for saw in (e.key.split(":", 2) for e in noted if e.word == "saw"):
        assert committed[saw[1], "said"] == saw[2], f"{saw[0]} was handed what nobody committed"
    for row in await stage.rows(HANDED, run):
        assert committed[row["input"], "said"] == row["digest"], dict(row)
    for found in document["steps"]:
        outputs = {name for id, name in committed if id == found["id"]}
        assert (found["state"] == "succeeded") == bool(outputs), found
    assert document["finished_at"] is not None, document["status"]
    assert sum(document["counts"].values()) == document["total"], document["counts"]
    return document


def counted(stage: Stage, run: str) -> Counter[tuple[str, str]]:
    return effects.counted(stage.noted(run))

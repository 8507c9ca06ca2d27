"""Chapter 70: what one step hands to another, what of it is recorded, and the packet that no worker can change."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from fencepost import attempts, plans, terminal
from fencepost.db import Database
from fencepost.words import CANCELLING, STALE, Fence
from tests.plan_table import JSON, TEXT, Table, digest_of, hand, maybe, result, retry, step
from tests.support import new_holder, tables
from tests.support_runs import cancel, lose

pytestmark = pytest.mark.usefixtures("lawful")

MODES = ("none", "reference", "quote", "content")


async def handed(admin: asyncpg.Connection, run: str) -> list[tuple[Any, ...]]:
    """What was recorded for the attempts of a try."""
    return [
        tuple(row)
        for row in await admin.fetch(
            "select h.number, h.id, h.input, h.mode, h.source, h.output, h.digest, h.reason from fencepost.handoff h "
            "join fencepost.run r on r.rid = h.rid where r.id = $1 order by h.number, h.id",
            run,
        )
    ]


async def test_a_packet_names_who_runs_what_and_what_it_was_handed(table: Table) -> None:
    """70.9 Organisation, run, step, try, attempt, the definition as it was admitted, and the inputs by name."""
    given = step("b", "a", handoffs=[hand("a.o", input="log")], retry=retry(3, on=["timeout"]))
    await table.admit("p", step("a"), given, org="acme")
    await table.through("a", o="1\n")
    claimed = await table.one("b")
    packet = await table.begin(claimed)
    assert packet == {
        "run": "p", "org": "acme", "plan": "p", "step": "b", "try": 1, "child": "p/b/1", "attempt": 1, "definition": given,
        "inputs": {
            "log": {
                "binding": "log", "input": "log", "mode": "content", "required": True, "description": "of a",
                "source": {"run": "p/a/1", "step": "a", "output": "o"}, "media_type": TEXT, "size": 2,
                "digest": digest_of("1\n"), "text": "1\n",
            }
        },
    }  # fmt: skip


async def test_hand_offs_are_resolved_by_their_mode_and_recorded_with_their_digests(
    table: Table, admin: asyncpg.Connection
) -> None:
    """70.8 After begin, per attempt: each mode, from one committed result, with its origin and digest."""
    await table.admit("p", step("a"), step("b", "a", handoffs=[hand("a.o", mode, input=mode) for mode in MODES]))
    await table.through("a", o="said")
    claimed = await table.one("b")
    assert await handed(admin, "p/b/1") == []
    inputs = (await table.begin(claimed))["inputs"]
    assert {name: i["mode"] for name, i in inputs.items()} == {mode: mode for mode in MODES}
    for mode in MODES[1:]:
        assert (inputs[mode]["digest"], inputs[mode]["source"]["run"]) == (digest_of("said"), "p/a/1")
        assert inputs[mode]["text"] == "said", "the bytes lie in a file, whatever the mode"
    assert "digest" not in inputs["none"]
    assert await handed(admin, "p/b/1") == [
        (
            1,
            mode,
            mode,
            mode,
            *(("p/a/1", "o", digest_of("said"), None) if mode != "none" else (None, None, None, None)),
        )
        for mode in sorted(MODES)
    ]


async def test_an_optional_hand_off_without_its_output_arrives_as_none_with_the_reason(
    table: Table, admin: asyncpg.Connection
) -> None:
    """70.8 Its step failed, was skipped, or succeeded without it."""
    three = [hand(f"{name}.o", required=False) for name in ("bad", "off", "bare")]
    await table.admit(
        "p", step("bad"), step("off", initially_skipped=True), step("bare"),
        step("b", maybe("bad"), maybe("off"), "bare", handoffs=three),
    )  # fmt: skip
    claimed = await table.claim()
    await table.fail(claimed["bad"])
    await table.win(claimed["bare"], other="1")
    inputs = (await table.begin(await table.one("b")))["inputs"]
    assert {name: (i["mode"], i["reason"], i.get("source")) for name, i in inputs.items()} == {
        "bad": ("none", "step bad has no output o; it failed", None),
        "off": ("none", "step off has no output o; it was skipped", None),
        "bare": ("none", "step bare has no output o; it succeeded", None),
    }
    assert [row[3:] for row in await handed(admin, "p/b/1")] == [
        ("none", None, None, None, inputs[name]["reason"]) for name in ("bad", "bare", "off")
    ]


async def test_a_required_hand_off_without_its_output_is_never_begun(table: Table) -> None:
    """70.8 The step is skipped with the reason, and who needs it with it; one whose mode is none asks for nothing."""
    await table.admit(
        "p", step("a"), step("b", "a", handoffs=[hand("a.o")]), step("c", "b"), step("d", maybe("b"), handoffs=[]),
        step("e", "a", handoffs=[hand("a.o", "none")]), step("f", maybe("a"), handoffs=[hand("a.o", "reference")]),
    )  # fmt: skip
    await table.through("a", other="1")
    seen = await table.steps("p")
    assert {name: (s["state"], s["reason"]) for name, s in seen.items() if s["state"] != "running"} == {
        "a": ("succeeded", None),
        "b": ("skipped", "a required hand-off has no output"),
        "c": ("skipped", "needs b, which was skipped"),
        "f": ("skipped", "a required hand-off has no output"),
    }
    assert seen["b"]["attempts"] == 0
    assert set(await table.claim()) == {"d", "e"}


async def test_a_required_hand_off_that_holds_the_only_slot_lets_the_next_go(table: Table) -> None:
    """70.8 What is skipped for want of an input takes no slot; the next that is ready starts in the same transaction."""
    await table.admit(
        "p", step("a"), *(step(f"b{n}", "a", handoffs=[hand("a.o")]) for n in range(3)), step("z", "a"), most=1
    )
    await table.through("a")
    assert next(iter((await table.claim()).values())).id == "p/z/1"


async def test_each_attempt_has_its_own_record_of_what_it_was_handed(
    db: Database, table: Table, admin: asyncpg.Connection
) -> None:
    """70.8 Given back after begin by proof that it never ran, and tried again: one line an attempt, one set a try."""
    await table.admit("p", step("a"), step("b", "a", handoffs=[hand("a.o")], retry=retry(2)))
    await table.through("a", o="1")
    first = await table.one("b")
    await table.begin(first)
    assert await plans.lose(db, first.fence, begun=False) == "given_back"
    second = await table.one("b")
    await table.begin(second)
    assert [row[0] for row in await handed(admin, "p/b/1")] == [1, 2]
    await table.fail(second)
    await table.begin(await table.one("b"))
    assert [row[0] for row in await handed(admin, "p/b/2")] == [1]


async def test_the_packet_of_an_attempt_is_one_packet(db: Database, table: Table, admin: asyncpg.Connection) -> None:
    """70.9 Asked again by the same fence, and by whoever adopts it, it is the same text; nothing is recorded twice.

    Also when the source ends only meanwhile: it was needed through a step that was skipped early.
    """
    await table.admit(
        "p", step("late"), step("bad"), step("mid", "late", "bad"),
        step("b", maybe("mid"), handoffs=[hand("late.o", required=False)]),
    )  # fmt: skip
    gone = await new_holder(db)
    claimed = await table.claim(holder=gone)
    await table.fail(claimed["bad"])
    assert await table.states("p") == {"late": "running", "bad": "failed", "mid": "skipped", "b": "running"}
    mine = await table.one("b", holder=gone)
    packet = await table.begin(mine)
    assert packet["inputs"]["late"]["mode"] == "none"
    events = await table.story("p/b/1")
    await table.win(claimed["late"], o="too late for that attempt")
    assert await table.begin(mine, pid=99, folder="/elsewhere") == packet
    await lose(db, gone)
    await table.adopt(mine.fence.rid)
    again = await plans.read_process(db, mine.fence)
    assert again is not None
    assert (json.loads(again[0]), again[1:]) == (packet, (7, "9", "/f"))
    assert await handed(admin, "p/b/1") == [
        (1, "late", "late", "none", None, None, None, packet["inputs"]["late"]["reason"])
    ]
    assert events == [("run.admitted",), ("attempt.claimed",), ("attempt.begun",)]
    assert await table.story("p/b/1") == [*events, ("attempt.adopted",)]
    assert await plans.lose(db, mine.fence, begun=False) == "given_back"
    assert (await table.begin(await table.one("b")))["inputs"]["late"]["text"] == "too late for that attempt"


async def test_what_a_worker_says_of_itself_changes_no_packet(db: Database, table: Table) -> None:
    """70.9 Nothing of identities, bindings or policy is taken from it: not even an odd result can name another step's outputs."""
    await table.admit("p", step("a"), step("x"), step("b", "a", "x", handoffs=[hand("a.o")]))
    claimed = await table.claim()
    odd = {
        "outputs": {"o": {"media_type": TEXT, "size": 1, "digest": "sha256:z", "text": "z", "step": "a", "run": "q"}}
    }
    await terminal.finish(db, claimed["x"].fence, "completed", json.dumps(odd | {"step": "a", "retry": retry(100)}))
    assert await plans.read_result(db, "default", "p", "a", "o") is None
    await table.win(claimed["a"], o="1")
    packet = await table.begin(await table.one("b"))
    assert packet["inputs"]["a"]["text"] == "1"
    assert packet["definition"]["retry"] == retry(1)


async def test_only_a_living_fence_begins(db: Database, table: Table) -> None:
    """70.5 Stale, cancelling, of another run: no packet, and no process on record."""
    await table.admit("p", step("a"), step("b"), step("c"))
    claimed = await table.claim()
    await attempts.give_back(db, claimed["a"].fence)
    assert await table.begin(claimed["a"]) is STALE
    crossed = Fence(claimed["b"].fence.rid, 1, claimed["c"].fence.fence)
    assert await plans.begin(db, crossed, plans.Carrier("b", "n", 1, "1", "h", "/f")) is STALE
    await cancel(db, "p")
    assert await table.begin(claimed["c"]) is CANCELLING
    assert (await tables(table.admin))["process"] == []


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("content", {"y": 2, "a": {"n": [1, 2]}}),
        ("reference", {"y": 2, "a": "reference"}),
        ("quote", {"y": 2, "a": "quote"}),
        ("none", {"y": 2, "a": {"mode": "none"}}),
    ],
)
async def test_a_workflow_step_is_given_its_hand_offs_by_name(
    db: Database, table: Table, mode: str, expected: dict[str, Any]
) -> None:
    """70.8 Beside its own input: the value itself, a quotation with digest and origin, a reference without the text, nothing."""
    await table.admit(
        "p",
        step("a"),
        step("w", "a", kind="workflow", input={"y": 2, "a": "is handed over"}, handoffs=[hand("a.o", mode)]),
    )
    text = '{"n": [1, 2]}'
    await terminal.finish(db, (await table.one("a")).fence, "completed", result({"o": text}, JSON))
    given = json.loads((await table.one("w")).input or "")
    quoted = given["a"] if isinstance(given["a"], dict) and mode != "content" else {}
    if quoted.get("source"):
        assert (quoted["digest"], quoted["source"]["run"]) == (digest_of(text), "p/a/1")
        assert quoted.get("text") == (text if mode == "quote" else None)
        given["a"] = quoted["mode"]
    elif mode == "none":
        given["a"] = {"mode": quoted["mode"]}
    assert given == expected
    source = ("p/a/1", "o", digest_of(text)) if mode != "none" else (None, None, None)
    assert await handed(table.admin, "p/w/1") == [(0, "a", "a", mode, *source, None)]


@pytest.mark.parametrize("text", ['"\\u0000"', "[1e999999]", "{", "", '"\\ud800"', "[" * 60000 + "]" * 60000])
async def test_json_that_the_database_cannot_read_is_handed_on_as_the_text_it_is(
    db: Database, table: Table, text: str
) -> None:
    """70.8 Whatever a step declared its output to be: the transaction that ends it must not fail, or it would never end (70.13)."""
    both = [hand("a.o")]
    await table.admit("p", step("a"), step("w", "a", kind="workflow", handoffs=both), step("b", "a", handoffs=both))
    await terminal.finish(db, (await table.one("a")).fence, "completed", result({"o": text}, JSON))
    claimed = await table.claim()
    assert json.loads(claimed["w"].input or "") == {"a": text}
    assert (await table.begin(claimed["b"]))["inputs"]["a"]["text"] == text

"""Random plans without faults, as documents; the builder's calls that say the same; and the normal form, made here by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from fencepost import Plan, PlanStep, StepRetry, file, returned, stdout

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
WORDS = TEXTS.map(lambda text: text.replace("{", "{{").replace("}", "}}"))
TREES = st.dictionaries(
    TEXTS,
    st.recursive(
        st.booleans() | st.integers(-(10**15), 10**15) | TEXTS,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)
SCHEMAS = st.sampled_from([{"type": "object"}, {"type": "array", "items": {"type": "integer", "minimum": 0}}, {}])
ENVS = st.dictionaries(st.from_regex(r"[A-Z_]{1,6}", fullmatch=True), WORDS, max_size=2)
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,5}", fullmatch=True)
RETRYABLE = ["failure", "timeout", "launch_error", "invalid_output"]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A plan as a file would say it. Every field is there or left out by chance."""
    ids = draw(st.lists(IDS, min_size=1, max_size=7, unique=True))
    steps: list[dict[str, Any]] = []
    above: dict[str, set[str]] = {}  # of a step: all it waits for
    outputs: dict[str, list[str]] = {}
    for id in ids:
        needs = (
            draw(st.lists(st.sampled_from([step["id"] for step in steps]), unique=True, max_size=3)) if steps else []
        )
        above[id] = set(needs).union(*(above[need] for need in needs))
        step = {"id": id} | draw(st.sampled_from([_command, _python, _workflow]))(draw)
        outputs[id] = [*step.get("outputs", {})] if "command" in step else [*step.get("outputs", {"result": None})]
        if needs or draw(st.booleans()):
            step["needs"] = [
                draw(st.sampled_from([need, {"step": need}, {"step": need, "optional": True}])) for need in needs
            ]
        sources = sorted((source, name) for source in above[id] for name in outputs[source])
        taken = draw(st.lists(st.sampled_from(sources), max_size=2)) if sources else []
        if taken:
            step["handoffs"] = [_handoff(draw, n, *source) for n, source in enumerate(taken)]
        if draw(st.booleans()):
            step["retry"] = _retry(draw)
        step |= _some(draw, on_lost=st.sampled_from(["fail", "replay", "ask"]), initially_skipped=st.booleans())
        steps.append(step)
    return {"name": draw(TEXTS.filter(lambda text: text.strip() and "/" not in text and text.isprintable())), "step": steps} | _some(
        draw, max_concurrency=st.integers(1, 10_000)
    )  # fmt: skip


def _some(draw: st.DrawFn, **fields: st.SearchStrategy[Any]) -> dict[str, Any]:
    return {key: draw(values) for key, values in fields.items() if draw(st.booleans())}


def _command(draw: st.DrawFn) -> dict[str, Any]:
    found = {"command": [draw(WORDS.filter(str.strip)), *draw(st.lists(WORDS, max_size=2))]}
    names = draw(st.lists(IDS, max_size=2, unique=True))
    if names:
        found["outputs"] = {names[0]: {"from": "stdout"} | _some(draw, schema=SCHEMAS, required=st.booleans())} | {
            name: {"from": "file", "path": draw(st.sampled_from(["a", "b/c.md", "d.json"]))}
            | _some(draw, schema=SCHEMAS, required=st.booleans())
            for name in names[1:]
        }
    return found | _some(draw, env=ENVS, cwd=WORDS, stdin=WORDS, timeout=st.integers(1, 10**8).map("{}ms".format))


def _python(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {"python": draw(st.sampled_from(["m:f", "a.b:c.d"]))}
    if draw(st.booleans()):
        found["outputs"] = {"out": {"from": "return"} | _some(draw, schema=SCHEMAS, required=st.booleans())}
    return found | _some(draw, env=ENVS, cwd=WORDS, input=TREES, timeout=st.integers(1, 10**8).map("{}ms".format))


def _workflow(draw: st.DrawFn) -> dict[str, Any]:
    return {"workflow": draw(TEXTS.filter(lambda text: ":" not in text))} | _some(draw, input=TREES)


def _handoff(draw: st.DrawFn, n: int, source: str, output: str) -> dict[str, Any]:
    return {"input": f"in{n}", "from": f"{source}.{output}"} | _some(
        draw,
        mode=st.sampled_from(["none", "reference", "quote", "content"]),
        required=st.booleans(),
        description=TEXTS,
        id=st.just(f"binding{n}"),
    )


def _retry(draw: st.DrawFn) -> dict[str, Any]:
    most = st.sampled_from([0, 604_800_000])
    return _some(
        draw, max_attempts=st.integers(1, 100), backoff=st.sampled_from(["none", "linear", "exponential"]),
        initial_delay_ms=st.integers(0, 604_800_000), max_delay_ms=most, on=st.lists(st.sampled_from(RETRYABLE), min_size=1, unique=True),
    )  # fmt: skip


def built(document: dict[str, Any]) -> Plan:
    """The same plan by the builder's words."""
    plan = Plan(document["name"], **{key: document[key] for key in ("max_concurrency",) if key in document})
    made: dict[str, PlanStep] = {}
    for step in document["step"]:
        common: dict[str, Any] = {
            key: step[key] for key in ("on_lost", "initially_skipped", "env", "cwd", "stdin", "input") if key in step
        }
        common["needs"] = [_need(made, need) for need in step.get("needs", [])]
        common["inputs"] = {each["input"]: _input(made, each) for each in step.get("handoffs", [])}
        if "retry" in step:
            common["retry"] = StepRetry(
                **step["retry"] | ({"on": tuple(step["retry"]["on"])} if "on" in step["retry"] else {})
            )
        if "timeout" in step:
            common["timeout"] = timedelta(milliseconds=int(step["timeout"].removesuffix("ms")))
        if "outputs" in step:
            common["outputs"] = {name: _target(dict(output)) for name, output in step["outputs"].items()}
        kind = next(kind for kind in ("command", "python", "workflow") if kind in step)
        made[step["id"]] = getattr(plan, kind)(step["id"], step[kind], **common)
    return plan


def _need(made: dict[str, PlanStep], need: Any) -> Any:
    if isinstance(need, str):
        return made[need]
    return made[need["step"]].optional() if need.get("optional") else made[need["step"]]


def _input(made: dict[str, PlanStep], handoff: dict[str, Any]) -> Any:
    step, _, output = handoff["from"].partition(".")
    more = {key: handoff[key] for key in ("required", "description", "id") if key in handoff}
    return getattr(made[step].output(output), handoff.get("mode", "content"))(**more)


def _target(output: dict[str, Any]) -> Any:
    makers: dict[str, Any] = {"stdout": stdout, "file": file, "return": returned}
    return makers[output.pop("from")](**output)

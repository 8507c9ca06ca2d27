"""Plans with faults, and what must be named of each (law 70.1): data of test_70_definition."""

from __future__ import annotations

Told = list[tuple[int | None, str, str]]

GOOD = """\
name = "release-notes"
max_concurrency = 2

[[step]]
id = "log"
command = ["git", "log", "--oneline", "-20"]
outputs.log = { from = "stdout" }

[[step]]
id = "notes"
needs = ["log"]
command = ["python", "notes.py"]
handoffs = [{ input = "log", from = "log.log", mode = "content", required = true }]
outputs.notes = { from = "file", path = "notes.md" }
retry = { max_attempts = 3, backoff = "exponential", initial_delay_ms = 500, max_delay_ms = 10000, on = ["failure", "timeout"] }
timeout = "2m"
on_lost = "fail"            # or "replay" (declared repeatable) or "ask"
"""


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def step(**fields: str) -> str:
    """A plan of steps `a` and `b`, which needs it; the fields of `b`, as TOML, from line 8 on."""
    given = {"id": '"b"', "needs": '["a"]', "command": '["true"]'} | fields
    lines = [f"{key} = {value}" for key, value in given.items() if value]
    return (
        'name = "n"\n[[step]]\nid = "a"\ncommand = ["true"]\noutputs.o = { from = "stdout" }\n\n[[step]]\n'
        + "\n".join(lines)
    )


# Law 70.1 and its words: case -> (the plan, what is named: line, path, a part of the message)
CASES: dict[str, tuple[str, Told]] = {
    "a cycle": (
        changed('id = "log"\n', 'id = "log"\nneeds = ["notes"]\n'),
        [(6, "step[1] log: needs[1]", "'log', which needs 'notes', which needs 'log'")],
    ),
    "an unknown dependency": (
        changed('needs = ["log"]', 'needs = ["lgo"]'),
        [
            (11, "step[2] notes: needs[1]", "there is no step 'lgo'; did you mean 'log'?"),
            (13, "step[2] notes: handoffs[1].from", "step 'log' is not among what 'notes' waits for: add it to needs"),
        ],
    ),
    "a duplicate dependency": (
        changed('needs = ["log"]', 'needs = [\n  "log",\n  { step = "log", optional = true },\n]'),
        [(13, "step[2] notes: needs[2]", "'log' stands there already")],
    ),
    "a dependency on itself": (
        changed('needs = ["log"]', 'needs = ["log", "notes"]'),
        [(11, "step[2] notes: needs[2]", "is the step itself")],
    ),
    "an empty step id": (
        changed('id = "log"\n', 'id = ""\n'),
        [
            (5, "step[1]: id", "is empty: give it a name"),
            (11, "step[2] notes: needs[1]", "there is no step 'log'"),
            (13, "step[2] notes: handoffs[1].from", "there is no step 'log'"),
        ],
    ),
    "no step id": (
        changed('id = "notes"\n', ""),
        [(9, "step[2]", "has no id")],
    ),
    "a duplicate step id": (
        changed('id = "notes"\n', 'id = "log"\n') + '\n[[step]]\nid = "log"\ncommand = ["true"]\n',
        [
            (10, "step[2] log: id", "'log' is the id of step[1] too"),
            (11, "step[2] log: needs[1]", "is the step itself"),
            (13, "step[2] log: handoffs[1].from", "is an output of the step itself"),
            (20, "step[3] log: id", "'log' is the id of step[1] too"),
        ],
    ),
    "an unknown back-off": (
        changed('"exponential"', '"exponentiel"'),
        [(15, "step[2] notes: retry.backoff", "write 'none', 'linear' or 'exponential'; did you mean 'exponential'?")],
    ),
    "an unknown outcome": (
        changed('["failure", "timeout"]', '["failure", "tiemout", "success"]'),
        [
            (15, "step[2] notes: retry.on[2]", "did you mean 'timeout'?"),
            (15, "step[2] notes: retry.on[3]", "'success' is no reason to try again"),
        ],
    ),
    "the outcome lost": (
        changed('["failure", "timeout"]', '["lost"]'),
        [(15, "step[2] notes: retry.on[1]", "'lost' cannot be listed: a lost attempt follows the step's on_lost")],
    ),
    "the outcome cancelled": (
        changed('["failure", "timeout"]', '["cancelled"]'),
        [(15, "step[2] notes: retry.on[1]", "'cancelled' is no reason to try again")],
    ),
    "limits out of range": (
        changed("max_concurrency = 2", "max_concurrency = 0")
        .replace("max_attempts = 3", "max_attempts = 101")
        .replace("initial_delay_ms = 500", "initial_delay_ms = -1")
        .replace("max_delay_ms = 10000", "max_delay_ms = 604800001")
        .replace('"2m"', '"31d"'),
        [
            (2, "max_concurrency", "is 0: write a whole number from 1 to 10,000"),
            (15, "step[2] notes: retry.initial_delay_ms", "is -1: write a whole number from 0 to 604,800,000"),
            (15, "step[2] notes: retry.max_attempts", "is 101: write a whole number from 1 to 100"),
            (15, "step[2] notes: retry.max_delay_ms", "is 604,800,001"),
            (16, "step[2] notes: timeout", "is 31d: write a duration from 1ms to 30d"),
        ],
    ),
    "true is no number": (
        changed("max_attempts = 3", "max_attempts = true").replace("max_concurrency = 2", "max_concurrency = 2.0"),
        [
            (2, "max_concurrency", "is a number with a point: write a whole number"),
            (15, "step[2] notes: retry.max_attempts", "is true: write a whole number"),
        ],
    ),
    "a cap below the first delay": (
        changed("max_delay_ms = 10000", "max_delay_ms = 499"),
        [(15, "step[2] notes: retry.max_delay_ms", "is less than initial_delay_ms (500)")],
    ),
    "a hand-off from a step that is no dependency": (
        changed('needs = ["log"]\n', ""),
        [(12, "step[2] notes: handoffs[1].from", "step 'log' is not among what 'notes' waits for")],
    ),
    "a hand-off from a step there is not": (
        changed('from = "log.log"', 'from = "lgo.log"'),
        [(13, "step[2] notes: handoffs[1].from", "there is no step 'lgo'; did you mean 'log'?")],
    ),
    "a hand-off from the step itself": (
        changed('from = "log.log"', 'from = "notes.notes"'),
        [(13, "step[2] notes: handoffs[1].from", "is an output of the step itself")],
    ),
    "a hand-off of an output there is not": (
        changed('from = "log.log"', 'from = "log.lgo"'),
        [(13, "step[2] notes: handoffs[1].from", "step 'log' has no output 'lgo'; it has 'log'; did you mean 'log'?")],
    ),
    "a hand-off that names no output": (
        changed('from = "log.log"', 'from = "log"'),
        [(13, "step[2] notes: handoffs[1].from", "write STEP.OUTPUT")],
    ),
    "an unknown mode": (
        changed('"content"', '"contents"'),
        [(13, "step[2] notes: handoffs[1].mode", "did you mean 'content'?")],
    ),
    "one input twice": (
        step(handoffs='[{ input = "x", from = "a.o" },\n  { input = "x", from = "a.o", id = "second" },\n  { input = "y", from = "a.o", id = "x" }]'),
        [
            (12, "step[2] b: handoffs[2].input", "'x' is given by an earlier hand-off too"),
            (13, "step[2] b: handoffs[3].id", "'x' is the id of an earlier hand-off too"),
        ],
    ),
    "a hand-off without its words": (
        step(handoffs='[{ mode = "none" }, 3]'),
        [
            (11, "step[2] b: handoffs[1]", "has no input"),
            (11, "step[2] b: handoffs[1]", "has no from"),
            (11, "step[2] b: handoffs[2]", "is a whole number: write a table"),
        ],
    ),
    "an unknown on_lost": (
        changed('on_lost = "fail"', 'on_lost = "retry"'),
        [(17, "step[2] notes: on_lost", "write 'fail', 'replay' or 'ask'")],
    ),
    "misspelt keys": (
        changed("name =", "nmae =").replace('command = ["git"', 'comand = ["git"').replace("timeout =", "tiemout =")
        .replace("backoff", "back_off").replace("path =", "pth =").replace("input =", "inptu =").replace("handoffs", "handofs"),
        [
            (1, "nmae", "did you mean 'name'?"),
            (6, "step[1] log: comand", "did you mean 'command'?"),
            (13, "step[2] notes: handofs", "did you mean 'handoffs'?"),
            (14, "step[2] notes: outputs.notes.pth", "did you mean 'path'?"),
            (15, "step[2] notes: retry.back_off", "did you mean 'backoff'?"),
            (16, "step[2] notes: tiemout", "did you mean 'timeout'?"),
        ],
    ),
    "a key that means nothing": (
        changed('timeout = "2m"', "zebra = 1"),
        [(16, "step[2] notes: zebra", "is no word here: take it out, or write one of id, needs,")],
    ),
    "[[steps]]": (
        'name = "n"\n[[steps]]\nid = "a"\n',
        [(2, "steps", "did you mean 'step'?")],
    ),
    "wrong types": (
        step(
            id="3", needs='"a"', command='"git log"', timeout="5", initially_skipped='"no"', retry="3", outputs='"stdout"',
            handoffs="{}", env='["a"]',
        ),
        [
            (8, "step[2]: id", "is a whole number: write text, in quotes"),
            (9, "step[2]: needs", 'is text: write a list, such as needs = ["log"]'),
            (10, "step[2]: command", "is text: write a list"),
            (11, "step[2]: timeout", "write a duration with its unit"),
            (12, "step[2]: initially_skipped", "is text: write true or false"),
            (13, "step[2]: retry", "is a whole number: write a table"),
            (14, "step[2]: outputs", "is text: write a table"),
            (15, "step[2]: handoffs", "is a table: write a list"),
            (16, "step[2]: env", "is a list: write a table"),
        ],
    ),
    "wrong entries": (
        step(needs='["a", 3, { steps = "a" }, {}]', command='["true",\n 1.5]', env='{ A = 1, "B=C" = "x", FENCEPOST_PACKET = "y" }'),
        [
            (9, "step[2] b: needs[2]", "is a whole number: write a step's id"),
            (9, "step[2] b: needs[3].steps", "did you mean 'step'?"),
            (9, "step[2] b: needs[4]", "names no step"),
            (11, "step[2] b: command[2]", "is a number with a point: write text"),
            (12, "step[2] b: env.'B=C'", "cannot name a variable"),
            (12, "step[2] b: env.A", "is a whole number: write text"),
            (12, "step[2] b: env.FENCEPOST_PACKET", "is set for every attempt"),
        ],
    ),
    "a step that does nothing": (
        step(command=""),
        [(7, "step[2] b", "does nothing: give it one of command, python or workflow")],
    ),
    "a step that does two things": (
        step(python='"m:f"', timeout='"soon"', on_lost='"maybe"'),
        [
            (11, "step[2] b: python", "cannot stand beside command"),
            (12, "step[2] b: timeout", "is not a duration"),
            (13, "step[2] b: on_lost", "'maybe' is not known"),
        ],
    ),
    "an empty command": (
        step(command="[]"),
        [(10, "step[2] b: command", "is empty: write the program and its arguments")],
    ),
    "a command without a program": (
        step(command='["", "x"]'),
        [(10, "step[2] b: command[1]", "is empty: the first entry is the program")],
    ),
    "no function": (
        step(command="", python='"reports.notes"'),
        [(10, "step[2] b: python", "write MODULE:FUNCTION")],
    ),
    "no workflow": (
        step(command="", workflow='"shop:ordre"', timeout='"2m"', outputs='{ result = { from = "return" } }', cwd='"x"'),
        [
            (10, "step[2] b: workflow", "module shop has no 'shop:ordre'"),
            (11, "step[2] b: timeout", "a workflow sets its own"),
            (12, "step[2] b: outputs", "what the workflow returns is its one output, 'result'"),
            (13, "step[2] b: cwd", "is for command and python steps"),
        ],
    ),
    "what is for other kinds": (
        step(command="", python='"m:f"', stdin='"x"'),
        [(11, "step[2] b: stdin", "is for command steps")],
    ),
    "output paths that leave the folder": (
        step(**{
            "outputs.a": '{ from = "file", path = "../a" }', "outputs.b": '{ from = "file", path = "/etc/b" }',
            "outputs.c": '{ from = "file", path = "x/../c" }', "outputs.d": '{ from = "file", path = "." }',
            "outputs.e": '{ from = "file", path = "d/" }', "outputs.f": "{ from = 'file', path = 'x\\..\\..\\f' }",
            "outputs.g": f'{{ from = "file", path = "{"g" * 256}" }}',
        }),
        [
            (11, "step[2] b: outputs.a.path", "leaves the folder of outputs"),
            (12, "step[2] b: outputs.b.path", "leaves the folder of outputs"),
            (13, "step[2] b: outputs.c.path", "leaves the folder of outputs"),
            (14, "step[2] b: outputs.d.path", "is a folder"),
            (15, "step[2] b: outputs.e.path", "is a folder"),
            (16, "step[2] b: outputs.f.path", "leaves the folder of outputs"),
            (17, "step[2] b: outputs.g.path", "more than 255 bytes"),
        ],
    ),
    "outputs that say too little or too much": (
        step(**{
            "outputs.a": "{}", "outputs.b": '{ from = "file" }', "outputs.c": '{ from = "stdout", path = "c" }',
            "outputs.d": '{ from = "return" }', "outputs.e": '{ from = "stdout" }',
            'outputs."f g"': '{ from = "stdout", media_type = "text" }',
        }),
        [
            (11, "step[2] b: outputs.a", 'does not say where it is from: write from = "stdout" or "file"'),
            (12, "step[2] b: outputs.b", "has no path"),
            (13, "step[2] b: outputs.c.path", "this one is from stdout"),
            (14, "step[2] b: outputs.d.from", "write 'stdout' or 'file'"),
            (15, "step[2] b: outputs.e.from", "an earlier output is from stdout too"),
            (16, "step[2] b: outputs.'f g'", "is no name: use letters"),
            (16, "step[2] b: outputs.'f g'.from", "an earlier output is from stdout too"),
            (16, "step[2] b: outputs.'f g'.media_type", "is no media type"),
        ],
    ),
    "no JSON Schema": (
        step(**{
            "outputs.a": '{ from = "file", path = "a", schema = { properties = { n = { type = "nubmer" } } } }',
            "outputs.b": '{ from = "file", path = "b", schema = { "$ref" = "http://127.0.0.1:9/x" } }',
            "outputs.c": '{ from = "stdout", schema = { type = "object" }, media_type = "text/plain" }',
        }),
        [
            (11, "step[2] b: outputs.a.schema.properties.n.type", "is no JSON Schema"),
            (12, "step[2] b: outputs.b.schema", "is no JSON Schema"),
            (13, "step[2] b: outputs.c.media_type", "an output with a schema, or from return, is JSON"),
        ],
    ),
    "templates that name what is not there": (
        step(
            command='["x", "{inputs.y.path}",\n "{inputs.x.value} {inputs.z.path} {outputs.q.path}",\n '
            '"{outputs.o.path} {attempt}{run}{step} {{ }}", '
            '"{home} } {outputs.f.value} {outputs.f.path}"]',
            handoffs='[{ input = "x", from = "a.o" }, { input = "y", from = "a.o", mode = "none" }]',
            outputs='{ o = { from = "stdout" }, f = { from = "file", path = "f" } }',
            cwd='"{nowhere}"', stdin='"{inputs.y.value}"', env='{ A = "{" }',
        ),
        [
            (10, "step[2] b: command[2]", "mode none, which gives no path; take mode 'reference', 'quote' or 'content'"),
            (11, "step[2] b: command[3]", "no hand-off gives an input 'z' (there is 'x' or 'y')"),
            (11, "step[2] b: command[3]", "the step has no output 'q' (there is 'o' or 'f')"),
            (12, "step[2] b: command[4]", "output 'o' is from stdout; only one from a file has a path"),
            (12, "step[2] b: command[5]", "has a single }: write }}"),
            (12, "step[2] b: command[5]", "{home} is no template"),
            (12, "step[2] b: command[5]", "{outputs.f.value} is no template"),
            (15, "step[2] b: cwd", "{nowhere} is no template"),
            (16, "step[2] b: stdin", "input 'y' has mode none, which gives no value"),
            (17, "step[2] b: env.A", "has a single {: write {{"),
        ],
    ),
    "values that JSON has not": (
        step(command="", python='"m:f"', input="{ at = 2026-01-01, n = nan, deep = [1, 07:30:00] }"),
        [
            (11, "step[2] b: input.at", "is a date or a time"),
            (11, "step[2] b: input.deep[2]", "is a date or a time"),
            (11, "step[2] b: input.n", "is nan, which is no number in JSON"),
        ],
    ),
    "texts that cannot be stored": (
        step(cwd='"a\\u0000b"'),
        [(11, "step[2] b: cwd", "cannot be stored: the text contains a NUL character")],
    ),
    "no name and no step": ("max_concurrency = 1\n", [(1, "", "has no name"), (1, "", "has no step")]),
    "names that cannot be": ('name = "a/b"\nstep = 3\n', [(1, "name", "holds a /"), (2, "step", "write each step as a table of its own")]),
    "a blank name": ('name = " "\nstep = [3]\n', [(1, "name", "is blank"), (2, "step[1]", "is a whole number: write a table")]),
}  # fmt: skip

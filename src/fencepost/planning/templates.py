"""Templates: where a step's text names what its attempt is given. Judged with the plan, filled in when the attempt begins.

    {inputs.NAME.path}    the file that holds the input        {run}      the run's id
    {inputs.NAME.value}   the input itself, as text            {step}     the step's id
    {outputs.NAME.path}   where the output is to be written    {attempt}  the attempt's number

`{{` and `}}` stand for the brackets themselves. Nothing else may stand in brackets: what looks like a template is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from fencepost.planning.faults import quoted
from fencepost.shown import clip

FORMS: Final = "{inputs.NAME.path}, {inputs.NAME.value}, {outputs.NAME.path}, {run}, {step}, {attempt}"
PARTS: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
NAMED: Final = re.compile(r"(inputs|outputs)\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.(path|value)")
PLAIN: Final = ("run", "step", "attempt")
# Which modes of a hand-off give what: a reference is not fetched, and none is only waited for (law 70.8).
GIVES: Final = {"path": ("reference", "quote", "content"), "value": ("quote", "content")}


# Words a likeness among known names, or nothing.
Like: TypeAlias = Callable[[str, Iterable[str]], str]


def check(text: str, inputs: Mapping[str, str], outputs: Mapping[str, str] | None, like: Like) -> list[str]:
    """What is wrong with the templates of a text.

    `inputs`: name -> mode of its hand-off; `outputs`: name -> where it is from, None where that is not known.
    """
    if "{" not in text and "}" not in text:
        return []
    found = [_judged(part, inputs, outputs, like) for part in PARTS.finditer(text)]
    return [problem for problem in found if problem]


def _judged(
    part: re.Match[str], inputs: Mapping[str, str], outputs: Mapping[str, str] | None, like: Like
) -> str | None:
    word = part.group(1)
    if part.group() in ("{{", "}}") or word in PLAIN:
        return None
    shown = clip(part.group(), 100)
    if word is None:
        return f"has a single {shown}: write {shown * 2} for the bracket itself"
    named = NAMED.fullmatch(word)
    if named is None or named.group(1, 3) == ("outputs", "value"):
        return f"{shown} is no template: write one of {FORMS}; for brackets themselves write {{{{ and }}}}"
    group, name, what = named.groups()
    if group == "outputs":
        return None if outputs is None else _of_output(shown, name, outputs, like)
    if name not in inputs:
        return f"{shown}: no hand-off gives an input {name!r}{_has(inputs)}{like(name, inputs)}"
    if inputs[name] not in GIVES[what]:
        return (
            f"{shown}: input {name!r} has mode {inputs[name]}, which gives no {what}; take mode {quoted(GIVES[what])}"
        )
    return None


def _of_output(shown: str, name: str, outputs: Mapping[str, str], like: Like) -> str | None:
    if name not in outputs:
        return f"{shown}: the step has no output {name!r}{_has(outputs)}{like(name, outputs)}"
    if outputs[name] != "file":
        return f"{shown}: output {name!r} is from {outputs[name]}; only one from a file has a path"
    return None


def _has(known: Mapping[str, str]) -> str:
    return f" (there is {quoted(list(known))})" if known else ""


def render(text: str, given: Mapping[str, str | None]) -> str:
    """The text with its templates filled in. `given`: `run`, `step`, `attempt`, `inputs.NAME.path`, … -> text.

    None (an optional input that did not arrive) becomes nothing. Raises KeyError for a template that is not among them.
    """
    if "{" not in text and "}" not in text:
        return text

    def filled(part: re.Match[str]) -> str:
        word = part.group(1)
        if word is None:
            return part.group()[0]
        return given[word] or ""

    return PARTS.sub(filled, text)


def names(text: str) -> list[str]:
    """The templates of a text, without their brackets: what `render` will ask for."""
    return [part.group(1) for part in PARTS.finditer(text) if part.group(1) is not None]

"""The outputs of a step: what each is taken from, what it must be, and what a step has when it says nothing."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any, Final, cast

from fencepost.planning import model, schemas
from fencepost.planning.fields import Table
from fencepost.shown import clip

FROM: Final = {"command": ("stdout", "file"), "python": ("return", "stdout", "file")}
MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?: *;[ -~]*)?", re.ASCII)
PATH_CHARS_MAX: Final = 1000
# A fixed list, not the machine's: the same file is the same plan everywhere.
BY_SUFFIX: Final = {
    ".txt": model.TEXT, ".md": "text/markdown; charset=utf-8", ".csv": "text/csv; charset=utf-8", ".html": "text/html; charset=utf-8",
    ".json": model.JSON,
}  # fmt: skip
RESULT: Final = "result"


def read(step: Table, kind: str) -> dict[str, model.Output] | None:
    """The outputs of a step, by name; None where they could not be read."""
    raw = step.values.get("outputs")
    if kind == "workflow":
        if raw is not None:
            step.fault(
                "outputs",
                "is not for workflow steps: what the workflow returns is its one output, 'result'; take it out",
            )
        return {RESULT: model.Output(from_="return", media_type=model.JSON)}
    if raw is None:
        return {RESULT: model.Output(from_="return", media_type=model.JSON)} if kind == "python" else {}
    table = Table.of(step.faults, (*step.at, "outputs"), raw, 'outputs.log = { from = "stdout" }')
    if table is None:
        return None
    found: dict[str, model.Output] = {}
    for name, value in table.values.items():
        table.judged_name(name, name)
        entry = Table.of(step.faults, (*table.at, name), value, '{ from = "stdout" }')
        found[name] = model.Output(from_="file") if entry is None else _output(entry, kind)
    for source in ("stdout", "return"):
        for name in [name for name, output in found.items() if output.from_ == source][1:]:
            table.faults.add(
                (*table.at, name, "from"),
                f"an earlier output is from {source} too: there is one {source}, take one of them out",
            )
    return found


def _output(entry: Table, kind: str) -> model.Output:
    meant = entry.known(("from", "path", "media_type", "schema", "required"))
    source = entry.word("from", FROM[kind], "file")
    if entry.values.get("from") is None and "from" not in meant:
        entry.faults.add(
            entry.at,
            f"does not say where it is from: write from = {' or '.join(map(repr, FROM[kind]))}".replace("'", '"'),
        )
    path = entry.text("path", chars=PATH_CHARS_MAX)
    if source != "file" and path is not None:
        entry.fault("path", f'is for an output with from = "file"; this one is from {source}: take it out')
        path = None
    elif entry.values.get("from") == "file" and entry.values.get("path") is None and "path" not in meant:
        entry.faults.add(
            entry.at, 'has no path: write where in the folder of outputs the file is, such as path = "notes.md"'
        )
    schema = _schema(entry)
    return model.Output(
        from_=cast("model.OutputFrom", source), path=None if path is None else _inside(entry, path), schema=schema,
        media_type=_media_type(entry, source, path, entry.values.get("schema") is not None), required=entry.flag("required", default=True),
    )  # fmt: skip


def _inside(entry: Table, path: str) -> str:
    """The path as it is kept; what leaves the folder of outputs, or is the folder, is a fault."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\\" in path:
        entry.fault(
            "path",
            f"{clip(path, 100)!r} leaves the folder of outputs: write a path inside it, without .. and not from /",
        )
    elif not parts.parts or path.endswith("/"):
        entry.fault("path", f"{clip(path, 100)!r} is a folder: write the path of a file")
    elif any(len(part.encode()) > 255 for part in parts.parts):
        entry.fault("path", "has a part of more than 255 bytes, which no file system takes: shorten it")
    return str(parts)


def _media_type(entry: Table, source: str, path: str | None, judged: bool) -> str:  # noqa: FBT001 - has it a schema?
    json = judged or source == "return"
    default = (
        model.JSON
        if json
        else model.TEXT
        if source == "stdout"
        else BY_SUFFIX.get(PurePosixPath(path or "").suffix, model.BYTES)
    )
    given = entry.text("media_type", chars=255)
    if given is None:
        return default
    if not MEDIA_TYPE.fullmatch(given):
        entry.fault("media_type", f'{clip(given, 100)!r} is no media type: write one such as "text/markdown"')
    elif json and not re.fullmatch(r"application/(?:[\w.!#$&^-]+\+)?json(?: *;.*)?", given.lower()):
        entry.fault(
            "media_type",
            f"{clip(given, 100)!r}: an output with a schema, or from return, is JSON; leave media_type out",
        )
    return given


def _schema(entry: Table) -> dict[str, Any] | None:
    found = entry.tree("schema", '{ type = "object" }')
    if found is not None:
        for at, problem in schemas.check(found):
            entry.faults.add((*entry.at, "schema", *at), problem)
    return found

"""The named outputs of a try: found again as the supervisor found them, judged, and kept (law 70.6)."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from fencepost.planning import schemas
from fencepost.planning.model import Output
from fencepost.shown import clip, said
from fencepost.store import Store
from fencepost.worker.commands.folders import store_key
from fencepost.worker.commands.inputs import is_json
from fencepost.worker.commands.reports import Ended, Found

TEXT_BYTES_MAX: Final = 64 * 1024  # of an output that is told as text; a longer one is only in the store
TEXTS_BYTES_MAX: Final = 1024 * 1024  # of all of them
JSON_BYTES_MAX: Final = 64 * 1024 * 1024  # of one that is judged as JSON: that takes memory


class Unfit(Exception):
    """An output is not what it was declared to be: how, in plain words."""


def collect(store: Store, folder: Path, declared: Mapping[str, Output], ended: Ended) -> str | list[str]:
    """The result document as text; or what is wrong, each with the output's name. Raises StoreFailed."""
    found: dict[str, dict[str, Any]] = {}
    faults: list[str] = []
    room = TEXTS_BYTES_MAX
    for name, output in sorted(declared.items()):
        try:
            document = _one(store, folder, name, output, ended, min(room, TEXT_BYTES_MAX))
        except Unfit as unfit:
            faults.append(f"output {name!r} {unfit}")
            continue
        if document is not None:
            found[name] = document
            room -= document["size"] if "text" in document else 0
    return faults or msgspec.json.encode({"outputs": found}, order="sorted").decode()


def _one(store: Store, folder: Path, name: str, output: Output, ended: Ended, room: int) -> dict[str, Any] | None:
    """An output's entry of the document; None: it is not there, and need not be."""
    seen = ended.outputs.get(name)
    if seen is None or seen.problem == "missing":
        _missing(output, folder / "returns" / f"{name}.problem")
        return None
    if seen.problem is not None:
        raise Unfit(f"cannot be taken: {seen.problem}")
    if output.from_ == "stdout" and ended.stdout.dropped:
        kept = ended.stdout.size - ended.stdout.dropped
        raise Unfit(
            f"is too long: {ended.stdout.size:,} bytes were written to stdout, and {kept:,} could be kept; write a file"
        )
    if _judged(output) and seen.size > JSON_BYTES_MAX:
        raise Unfit(f"is too long to be judged as JSON: {seen.size:,} bytes, and the limit is {JSON_BYTES_MAX:,}")
    with _open(seen) as file:
        content = file.read(seen.size + 1) if seen.size <= room or _judged(output) else None
        if content is not None:
            _compare(seen, len(content), _digest(content))
            _judge(output, content)
        document: dict[str, Any] = {"media_type": output.media_type, "size": seen.size, "digest": seen.digest}
        text = _text(content) if content is not None and seen.size <= room else None
        if text is not None:
            return {**document, "text": text}
        file.seek(0)
        kept_as = store.put(store_key(folder), file)
    _compare(seen, kept_as.size, kept_as.digest)
    return {**document, "place": kept_as.place}


def _missing(output: Output, problem: Path) -> None:
    """Raises Unfit unless it may be missing."""
    if problem.exists():
        raise Unfit(f"cannot be kept: {clip(problem.read_text(encoding='utf-8', errors='replace'), 1000)}")
    if output.required:
        where = f": no file {output.path!r} was written to FENCEPOST_OUTPUTS" if output.from_ == "file" else ""
        raise Unfit(f"is missing{where}")


def _open(seen: Found) -> BinaryIO:
    """The file that the supervisor saw, if it is still one."""
    try:
        fd = os.open(seen.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise Unfit(f"was changed after the command had ended: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Unfit("was changed after the command had ended: it is no regular file any more")
    return os.fdopen(fd, "rb")


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _compare(seen: Found, size: int, digest: str) -> None:
    if (size, digest) != (seen.size, seen.digest):
        raise Unfit(
            f"was changed after the command had ended: it was {seen.digest} ({seen.size:,} bytes), it is {digest} ({size:,} bytes)"
        )


def _judged(output: Output) -> bool:
    return output.schema is not None or is_json(output.media_type)


def _judge(output: Output, content: bytes) -> None:
    """JSON is JSON, and keeps its schema; nothing is asked of other outputs."""
    if not _judged(output):
        return
    try:
        value = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unfit(f"is not valid JSON: {clip(said(error), 300)}") from error
    if output.schema is None or output.schema is True:
        return
    if output.schema is False:
        raise Unfit("does not keep its schema: `false` takes no value")
    try:
        misfits = schemas.misfits(output.schema, value)
    except ValueError as error:
        raise Unfit(f"could not be judged by its schema: {clip(said(error), 300)}") from error
    if misfits:
        where, problem = misfits[0]
        more = f" (and {len(misfits) - 1} more)" if len(misfits) > 1 else ""
        raise Unfit(f"does not keep its schema: {where}: {problem}{more}")


def _text(content: bytes) -> str | None:
    """The bytes as text that a row may hold; None: they stay in the store."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text

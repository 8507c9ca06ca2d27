"""One input as an attempt gets it: a file of its own, the value where it is small, and where it comes from (law 70.8)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from fencepost.store import Store
from fencepost.worker.commands import folders
from fencepost.worker.commands.packets import Input

INLINE_BYTES_MAX: Final = 256 * 1024  # of a value in the packet; a longer one is read from its file

_JSON: Final = re.compile(r"application/(?:[\w.!#$&^-]+\+)?json(?: *;.*)?", re.IGNORECASE)


def is_json(media_type: str | None) -> bool:
    """Whether a media type says JSON."""
    return media_type is not None and _JSON.fullmatch(media_type) is not None


@dataclass(frozen=True, slots=True)
class Given:
    """What a template and the packet may say of an input. `path` is None where it did not arrive, or is only waited for."""

    name: str
    path: Path | None
    document: dict[str, Any]

    def file(self) -> str | None:
        """For `{inputs.NAME.path}`."""
        return None if self.path is None else str(self.path)

    def text(self) -> str | None:
        """For `{inputs.NAME.value}`. Raises ValueError: it is no text."""
        if self.path is None:
            return None
        try:
            return self.path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"input {self.name!r} is not text (UTF-8): give its path instead of its value") from None


def give(path: Path, name: str, one: Input, store: Store) -> Given:
    """Write the input's file and say what the packet says of it. Raises StoreFailed, ValueError: it is not what was committed."""
    document: dict[str, Any] = {
        "mode": one.mode, "binding": one.binding, "required": one.required, "description": one.description, "source": one.source,
        "media_type": one.media_type, "size": one.size, "digest": one.digest,
    }  # fmt: skip
    if one.mode == "none" or (one.text is None and one.place is None):
        if one.required and one.mode != "none":
            raise ValueError(f"input {name!r} has nothing to give: {one.reason or 'no output was committed'}")
        return Given(name, None, {**document, "mode": "none", "reason": one.reason})
    if one.place is not None and one.digest is not None and not one.place.endswith(one.digest.replace(":", "-")):
        raise ValueError(
            f"input {name!r} was changed: what is kept at {one.place} does not have the digest {one.digest}"
        )
    if one.mode == "reference" and one.place is not None:
        document["place"] = one.place
        file = store.local_path(one.place)
        if file is not None:
            return Given(name, file, {**document, "path": str(file)})
    _write(path, name, one, store)
    if one.mode != "reference" and path.stat().st_size <= INLINE_BYTES_MAX:
        document["value"] = _value(path.read_bytes(), as_json=one.mode == "content" and is_json(one.media_type))
    return Given(name, path, {**document, "path": str(path)})


def _write(path: Path, name: str, one: Input, store: Store) -> None:
    if one.text is None:
        assert one.place is not None, "looked at before"
        store.copy(one.place, path)
        return
    content = one.text.encode()
    if one.digest is not None and one.digest != f"sha256:{hashlib.sha256(content).hexdigest()}":
        raise ValueError(f"input {name!r} was changed: its bytes do not have the digest {one.digest}")
    folders.write(path, content)


def _value(content: bytes, *, as_json: bool) -> Any:
    """The bytes as the packet holds them: JSON as it was written, else text; None: neither, it is read from its file."""
    if as_json:
        try:
            msgspec.json.decode(content)
        except msgspec.MsgspecError:
            pass
        else:
            return msgspec.Raw(content)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None

"""Keys: what tells one call of a step from every other, and its arguments from others. Neither may ever change."""

from __future__ import annotations

import hashlib
from typing import Any, Final
from uuid import UUID

import msgspec

from fencepost.decoding import decode
from fencepost.values import encode, sorted_text

_SHOWN_CHARS: Final = 80  # of a row's key, in the key of its batch
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


def hash_args(text: str, size: int = 8) -> str:
    """16 hex digits for a JSON text: the same for the same value, in whatever order its keys stand (law 50.4).

    Raises    Undecodable: the text is not JSON.
    """
    return _hash(_encode_sorted(decode(text, Any)), size)


def hash_call(args: tuple[object, ...], kwargs: dict[str, object], size: int = 8) -> str:
    """The hash of a call's arguments, as `hash_args` gives it of their text; of `size` bytes.

    Raises    Unstorable, with the path of an argument that is no JSON value.
    """
    call = [list(args), kwargs]
    text = sorted_text(call)  # most arguments are plain: one pass instead of three
    return hash_args(encode(call), size) if text is None else _hash(text, size)


def _hash(text: bytes, size: int) -> str:
    return hashlib.blake2b(text, digest_size=size).hexdigest()


def step_key(key_root: UUID, kind: str, name: str, ordinal: int, row: str | None = None) -> str:
    """The key of one call of a step (law 50.3), 32 hex digits. Never to change: providers remember keys.

    Each part is preceded by its length, so that no two calls can be spelled alike.
    """
    parts = [str(key_root), kind, name, str(ordinal), *([] if row is None else [row])]
    spelled = "".join(f"{len(part)}:{part}," for part in parts)
    return hashlib.sha256(spelled.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def batch_key(keys: list[str]) -> str:
    """The key of a batch: its first and its last row's, and 12 hex digits of all of them."""
    digest = hashlib.sha256("".join(f"{len(key)}:{key}" for key in keys).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{keys[0][:_SHOWN_CHARS]}..{keys[-1][:_SHOWN_CHARS]}.{digest[:12]}"


class CallKey:
    """The key of one call of a step, spelled out only when somebody asks: most steps never do."""

    __slots__ = ("_call",)

    def __init__(self, key_root: UUID, kind: str, name: str, ordinal: int) -> None:
        self._call = (key_root, kind, name, ordinal)

    def __str__(self) -> str:
        return step_key(*self._call)

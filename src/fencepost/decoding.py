"""From a stored text to a value of the type the code declares: the type alone chooses what is made (law 00.6).

pydantic is never imported: a model is known by its methods, and whoever has one has imported pydantic already.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final, TypeGuard, cast, get_args

import msgspec

from fencepost.shown import At, clip, path, said, shown, type_name

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


class Undecodable(Exception):
    """A stored value does not fit the type the code declares: `what` names the type, `problem` path and misfit."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(what, problem)
        self.what = what
        self.problem = problem

    def __str__(self) -> str:
        return f"The stored value does not fit {self.what}: {self.problem}."


def decode(text: str, type_: Any, *, texts: bool = False) -> Any:
    """The value of `type_` that `text` holds. Nothing is imported, and only the type chooses what is made (law 00.6).

    `type_` is any annotation: Any, None, a union, a model, a Struct, a dataclass, a TypedDict, or these in containers.
    `texts`: whoever wrote it had text only (a CSV file), so `"12"` is a number where the type says so.

    Raises    Undecodable: the text does not fit. The code has changed, or the text is not ours.
    """
    try:
        return _decoder_of(type_, strict=not texts)(text)
    except Exception as error:
        raise Undecodable(_named(type_), clip(_misfit(error), 2000)) from error


def check_type(type_: Any) -> None:
    """That values of the type can be kept and given back: to be asked when a step or workflow is declared.

    Raises    TypeError, saying which part of the type cannot.
    """
    problem = None
    try:
        _decoder_of(type_)
        found = _foreign_part(msgspec.inspect.type_info(type_), set())
        problem = found and f"{found} has no form in JSON"
    except Exception as error:
        problem = None if _adapter(type_) is not None else clip(said(error), 500)
    if problem is not None:
        raise TypeError(
            f"a value of type {_named(type_)} cannot be kept ({problem}): declare types of JSON, "
            "a dataclass, a TypedDict, a msgspec Struct or a pydantic model"
        )


def is_model(cls: object) -> TypeGuard[Any]:
    """Whether the class is a pydantic model, or does as one."""
    return isinstance(cls, type) and hasattr(cls, "model_dump") and hasattr(cls, "model_validate_json")


@lru_cache(maxsize=1024)
def takes_both_names(model: Any) -> bool:
    """Whether the model may be read by its fields' names too, whatever their aliases (pydantic 2.11 and later)."""
    return "by_name" in inspect.signature(model.model_validate_json).parameters


def _decoder_of(type_: Any, *, strict: bool = True) -> Callable[[str], Any]:
    try:
        return _decoder(type_, strict)
    except TypeError:
        return _decoder.__wrapped__(type_, strict)  # an annotation that has no hash; or the same refusal again


@lru_cache(maxsize=1024)
def _decoder(type_: Any, strict: bool) -> Callable[[str], Any]:  # noqa: FBT001 - a key of the cache
    if type_ is Any or type_ is object:
        return _decode
    if is_model(type_):
        return partial(_validated, type_)
    if hasattr(type_, "__pydantic_validator__") and (adapter := _adapter(type_)) is not None:
        return adapter  # a dataclass of pydantic's
    try:
        return msgspec.json.Decoder(type_, dec_hook=_made, strict=strict).decode
    except TypeError:
        # msgspec does not tell the members of a union of models apart; pydantic, being there, does.
        if (adapter := _adapter(type_)) is None:
            raise
        return adapter


def _adapter(type_: Any) -> Callable[[str], Any] | None:
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not _mentions_model(type_):
        return None
    try:
        adapter = pydantic.TypeAdapter(type_)
    except Exception:
        return None
    return partial(adapter.validate_json, **_names(pydantic.BaseModel))


def _mentions_model(type_: Any) -> bool:
    return hasattr(type_, "__pydantic_validator__") or any(map(_mentions_model, get_args(type_)))


def _names(model: Any) -> dict[str, bool]:
    return {"by_alias": True, "by_name": True} if takes_both_names(model) else {}


def _validated(model: Any, text: str | bytes) -> Any:
    return model.model_validate_json(text, **_names(model))


class _Misfits(ValueError):
    """What a model somewhere inside the type did not accept."""

    def __init__(self, found: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(problem for _, problem in found))
        self.found = found


def _made(cls: Any, value: Any) -> Any:
    """For msgspec: a model inside the type. It is given JSON again, because strict models judge JSON otherwise."""
    if cls is object:
        return value
    if not is_model(cls):
        raise TypeError(f"{cls.__qualname__} has no form in JSON")
    try:
        return _validated(cls, _encode(value))
    except Exception as error:
        raise _Misfits(_misfits(error)) from error


def _misfit(error: Exception) -> str:
    """What does not fit, and where: `$.rows[3].name: Field required`. The value may be a secret, so it is not shown."""
    if not isinstance(error, msgspec.MsgspecError):
        return "; ".join(f"{where}: {problem}" for where, problem in _misfits(error))
    if not isinstance(error, msgspec.ValidationError):
        return f"$: it is not JSON ({said(error)})"
    problem, _, where = said(error).rpartition(" - at `")
    where = where.rstrip("`") if problem else "$"
    if isinstance(inner := error.__cause__, _Misfits):
        return "; ".join(f"{where}{below[1:]}: {problem}" for below, problem in inner.found)
    return f"{where}: {problem or said(error)}"


def _misfits(error: Exception) -> list[tuple[str, str]]:
    if type(error).__module__.startswith("pydantic") and hasattr(error, "errors"):
        listed: list[dict[str, Any]] = cast("Any", error).errors(
            include_url=False, include_context=False, include_input=False
        )
        return [(path(_at(part["loc"])), clip(part["msg"], 300)) for part in listed[:5]]
    return [("$", said(error) if isinstance(error, TypeError) else f"{type_name(error)}: {said(error)}")]


def _at(steps: tuple[str | int, ...]) -> At:
    at: At = None
    for step in steps:
        at = (at, step)
    return at


def _foreign_part(info: Any, seen: set[int]) -> str | None:
    """The name of a type in the tree of types whose values the edge refuses."""
    kinds = msgspec.inspect
    if not isinstance(info, msgspec.Struct | tuple) or id(cast("object", info)) in seen:
        return None
    seen.add(id(cast("object", info)))
    if isinstance(info, kinds.CustomType):
        return None if is_model(info.cls) or info.cls is object else info.cls.__qualname__
    if isinstance(info, kinds.BytesType | kinds.ByteArrayType | kinds.MemoryViewType | kinds.RawType | kinds.ExtType):
        return _kind(info)
    if isinstance(info, kinds.DictType) and isinstance(info.key_type, kinds.IntType | kinds.FloatType | kinds.UUIDType):
        return f"a dict whose keys are {_kind(info.key_type)}"
    parts = msgspec.structs.astuple(info) if isinstance(info, msgspec.Struct) else cast("Any", info)
    return next((found for part in parts if (found := _foreign_part(part, seen)) is not None), None)


def _kind(info: object) -> str:
    return type_name(info).removesuffix("Type").lower()


def _named(type_: Any) -> str:
    if isinstance(type_, type) and not get_args(type_):
        return clip(type_.__qualname__, 300)
    return shown(type_, 300).replace("typing.", "")

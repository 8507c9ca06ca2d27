"""The four kinds of models that authors bring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

import msgspec
from pydantic import BaseModel


class Sheet(BaseModel):
    path: str
    limit: int | None = None


@dataclass
class Line:
    id: str
    count: int = 0
    tags: list[str] = field(default_factory=list[str])


class Receipt(msgspec.Struct):
    number: str
    lines: list[Line]


class Note(TypedDict):
    text: str
    by: NotRequired[str]

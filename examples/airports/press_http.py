"""As much of HTTP/1.1 as the press needs: one request a connection, a body of known length."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus

HEAD_MAX = 16 * 1024  # bytes of request line and headers together
BODY_MAX = 1024 * 1024  # bytes


class Refused(Exception):
    """An answer other than success. A status from 400 to 499 says that nothing was printed."""

    def __init__(self, status: HTTPStatus, problem: str) -> None:
        super().__init__(problem)
        self.status = status
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Request:
    """A request that has arrived whole; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader) -> Request:
    """One HTTP/1.1 request; Refused if it is not one, EOFError if the client goes away inside it."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEAD_MAX} bytes of headers") from None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refused(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in headers:
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is wanted, not Transfer-Encoding")
    length = headers.get("content-length", "" if words[0] == "POST" else "0")
    if not (length.isascii() and length.isdecimal()):
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is wanted")
    if len(length) > len(str(BODY_MAX)) or int(length) > BODY_MAX:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {BODY_MAX} bytes")
    return Request(words[0], words[1], headers, await reader.readexactly(int(length)))


def response(status: HTTPStatus, answer: dict[str, str]) -> bytes:
    """A whole answer, after which the connection is closed."""
    body = json.dumps(answer).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body

"""What a step says to a service: `ask` and `billed`. Where the services are is said by the environment (ENRICH_<NAME>)."""

from __future__ import annotations

import asyncio
import json
import os
from urllib.parse import quote, urlsplit


class Away(Exception):
    """It did nothing and charged nothing. `seconds`: how long it asks to be left alone, if it says so."""

    def __init__(self, problem: str, seconds: float | None = None) -> None:
        super().__init__(problem)
        self.seconds = seconds


class Refused(Exception):
    """It has answered that it will not do this: nothing was charged."""


class Cut(Exception):
    """The request left, and no answer came: nobody knows whether it was charged."""


async def ask(name: str, key: str, icao: str) -> str | None:
    """The country of an airport, for money; None: the service has none. Raises Away, Refused, Cut."""
    status, headers, answer = await _send(name, "POST", f"/country?icao={quote(icao)}", key)
    if status in (429, 503):
        after = headers.get("retry-after")
        raise Away(f"HTTP {status}", None if after is None else float(after))
    if 400 <= status < 500:
        raise Refused(f"HTTP {status}: {answer['error']}")
    return answer["country"]


async def billed(name: str, key: str) -> tuple[bool, str | None]:
    """Whether the call with this key was charged, and what it answered. Raises Away, Cut."""
    status, _, answer = await _send(name, "GET", f"/bill?key={quote(key)}", key)
    return status == 200, answer["country"]


async def _send(name: str, method: str, path: str, key: str) -> tuple[int, dict[str, str], dict[str, str | None]]:
    place = urlsplit(os.environ[f"ENRICH_{name.upper()}"])
    try:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
    except OSError as error:
        raise Away(f"{name}: {error}") from error
    try:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {place.netloc}\r\nIdempotency-Key: {key}\r\nContent-Length: 0\r\n\r\n"
        )
        writer.write(head.encode())
        first, _, body = (await reader.read()).partition(b"\r\n\r\n")
        line, *lines = first.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(line.split(" ")[1]), headers, json.loads(body)
    except (OSError, ValueError, IndexError) as error:
        raise Cut(f"{name} did not answer: {error!r}") from error
    finally:
        writer.close()

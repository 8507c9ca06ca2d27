"""Three paid HTTP services on loopback, as one meets them: flaky, slow, and rate-limited. All they do is in files.

    POST /country?icao=ICAO   header Idempotency-Key   -> 200 {"country": NAME or null}, or what goes wrong
    GET  /bill?key=K                                    -> 200 {"country": NAME} if that call was charged, else 404

Each appends a line to `<name>.calls` for every request, and to `<name>.bill` for every one it charges for, before it answers.
It does not look whether it has charged for that airport before: that is what the example has to show.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import parse_qs

from examples.airports import work
from examples.airports.press_http import HEAD_MAX, Refused, Request, read_request

Act = Literal["answer", "nothing", "busy", "refuse", "cut", "slow"]
NAMES = ("atlas", "gazetteer", "registry")
SLOW_SECONDS = 2.0  # longer than the step waits
CALLS_PER_SECOND = 3  # that the registry serves


def draw(name: str, icao: str, n: int) -> int:
    """A number below n, the same for the same airport at the same service, always."""
    return int.from_bytes(hashlib.sha256(f"{name} {icao}".encode()).digest()[:4], "big") % n


def conduct(name: str, icao: str) -> Act:
    """How a service treats an airport the first time. `busy` and `cut` are for the first call only."""
    acts: dict[str, tuple[Act, ...]] = {
        "atlas": ("busy", "cut", "nothing", "nothing", "nothing", "refuse", "answer", "answer", "answer", "answer"),
        "gazetteer": ("slow", "nothing", "nothing", "answer", "answer"),
        "registry": ("nothing", "cut", "answer", "answer"),
    }
    return acts[name][draw(name, icao, len(acts[name]))]


def expected(icao: str) -> str:
    """Which service answers for an airport, when every call is made as often as it must be."""
    return next((name for name in NAMES if conduct(name, icao) not in ("nothing", "refuse")), "nobody")


class Provider:
    """One service in the caller's event loop, on a port of its own. `charged` is called after each line of the bill, and awaited."""

    def __init__(
        self, name: str, folder: Path, countries: dict[str, str | None], charged: Callable[[], object]
    ) -> None:
        self.name = name
        self.url = ""
        self.early = 0  # calls that came before the time that Retry-After had named
        self._bill = folder / f"{name}.bill"
        self._calls = folder / f"{name}.calls"
        self._countries = countries
        self._charged = charged
        self._not_before: dict[str, float] = {}
        self._served: list[float] = []
        self._seen: set[str] = set()
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0, limit=HEAD_MAX)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def bill(self) -> list[tuple[str, str, str | None]]:
        """What was charged: key, airport, answer."""
        lines = self._bill.read_text().splitlines() if self._bill.exists() else []
        return [(line["key"], line["icao"], line["country"]) for line in map(json.loads, lines)]

    def calls(self, method: str) -> list[str]:
        """The key of each call, however it went."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [key for said, _, key in (line.partition(" ") for line in lines) if said == method]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request, and perhaps an answer."""
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            answer = await self._serve(await read_request(reader))
            if answer is not None:
                writer.write(answer)
                await writer.drain()
        except Refused as refused:
            writer.write(_response(refused.status, {"error": refused.problem}))
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the client has gone, or the example is over
        finally:
            writer.close()
            self._talks.discard(talk)

    async def _serve(self, request: Request) -> bytes | None:
        query = parse_qs(request.target.partition("?")[2])
        key = query["key"][0] if request.method == "GET" else request.headers["idempotency-key"]
        _append(self._calls, f"{request.method} {key}")
        if request.method == "GET":
            found = next((country for said, _, country in self.bill() if said == key), None)
            return _response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND, {"country": found})
        return await self._answer(key, query["icao"][0])

    async def _answer(self, key: str, icao: str) -> bytes | None:
        if self.name == "registry" and (wait := self._must_wait(key)):
            return _response(HTTPStatus.TOO_MANY_REQUESTS, {"error": "slower"}, {"Retry-After": str(wait)})
        act = conduct(self.name, icao)
        first = icao not in self._seen
        self._seen.add(icao)
        if act == "busy" and first:
            return _response(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "come again"})
        if act == "refuse":
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{icao} is not on this map")
        if act == "nothing":
            return _response(HTTPStatus.OK, {"country": None})
        country = self._countries[icao]
        _append(self._bill, json.dumps({"key": key, "icao": icao, "country": country}))
        done = self._charged()
        if asyncio.iscoroutine(done):
            await done
        if act == "cut" and first:
            return None
        if act == "slow":
            await asyncio.sleep(SLOW_SECONDS)  # waits: it is slow
        return _response(HTTPStatus.OK, {"country": country})

    def _must_wait(self, key: str) -> int:
        """Seconds that this caller must stay away; 0: it is served now."""
        now = time.monotonic()
        self.early += now < self._not_before.get(key, 0.0)
        self._served = [at for at in self._served if at > now - 1]
        if len(self._served) < CALLS_PER_SECOND:
            self._served.append(now)
            return 0
        self._not_before[key] = now + 1
        return 1


def countries() -> dict[str, str | None]:
    """Airport -> the name of its country, for every row of the sheet."""
    return {row["icao"]: work.locate(row).country_name for row in work.read_rows(work.AIRPORTS)}


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:  # one write to a file opened to append
        file.write(line + "\n")


def _response(status: HTTPStatus, answer: dict[str, str | None], headers: dict[str, str] | None = None) -> bytes:
    body = json.dumps(answer).encode()
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"} | (
        headers or {}
    )
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status.value} {status.phrase}\r\n{head}\r\n".encode() + body

"""A proxy that speaks PostgreSQL's protocol as far as it must: it knows where a statement begins and where its commit is answered.

    async with Proxy(dsn) as proxy:
        plan = proxy.plan(Plan("keep_steps", 1, "after"))      # executed, committed, and the reply is never seen
        ...                                                    # somebody who uses proxy.dsn
        assert plan.done.is_set()

Acts: `before`: the connection is cut before the server gets it. `after`: the server has executed and committed it, the connection
is cut before the reply. `error:40001`: the server never gets it, and the client is told that SQLSTATE. `hole`: it vanishes, and so
does everything on this connection from then on, without an end that anybody could see.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from fencepost.testing import with_database

_DOOR = re.compile(r'\b(?:from|select)\s+"?\w+"?\.(\w+)\(', re.IGNORECASE)
_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_ANSWER_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class Plan:
    """What is to happen to the nth statement of this name from now on. `of`: only on connections of this application."""

    statement: str
    n: int
    act: str
    of: str = ""
    seen: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True, eq=False)
class Link:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    application: str
    settings: dict[str, str] = field(default_factory=dict)  # what the client asked for when it connected
    texts: dict[bytes, str] = field(default_factory=dict)
    portal: bytes = b""
    executes: bool = False
    swallows: bool = False
    lost: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    listens: bool = False

    def cut(self) -> None:
        self.client.transport.abort()
        self.server.transport.abort()


class _Pulse:
    """An event that is told again and again."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def tell(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        await self._next.wait()


class Proxy:
    """Between its clients and one server."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        query = dict(parse_qsl(parts.query))
        self._host = query.get("host") or parts.hostname or "localhost"
        self._port = int(query.get("port") or parts.port or 5432)
        self._server_dsn = dsn
        self._plans: list[Plan] = []
        self._gate = asyncio.Event()
        self._gate.set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.links: set[Link] = set()
        self.counts: Counter[str] = Counter()  # statements by name
        self.changed = _Pulse()  # something was sent by somebody

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(self._server_dsn)
        user = parts.username or dict(parse_qsl(parts.query)).get("user") or "postgres"
        self.dsn = with_database(f"postgresql://{user}@127.0.0.1:{port}/x", parts.path.lstrip("/"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._gate.set()
        for link in list(self.links):
            link.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def plan(self, plan: Plan) -> Plan:
        self._plans.append(plan)
        return plan

    def forget(self) -> None:
        """No plan is carried out any more."""
        self._plans.clear()

    def freeze(self) -> None:
        """Nothing passes, in either direction, until `thaw`; nobody is told."""
        self._gate.clear()

    def thaw(self) -> None:
        self._gate.set()

    # ── one connection ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._connect(reader, writer)
        self._tasks.discard(task)
        writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(8)
            size, code = struct.unpack("!ii", head)
            body = await reader.readexactly(size - 8)
            if code not in {_SSL, _GSS}:
                break
            writer.write(b"N")
        await self._gate.wait()
        if self._host.startswith("/"):
            back, forth = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            back, forth = await asyncio.open_connection(self._host, self._port)
        forth.write(head + body)
        if code == _CANCEL:
            await forth.drain()
            forth.close()
            return
        words = body.split(b"\0")
        given = dict(zip(words[::2], words[1::2], strict=False))
        settings = {key.decode(): value.decode() for key, value in given.items()}
        link = Link(writer, forth, settings.get("application_name", ""), settings)
        self.links.add(link)
        try:
            up, down = (asyncio.ensure_future(c) for c in (self._up(link, reader), self._down(link, back)))
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if link.lost:
                await asyncio.Event().wait()
            for pump in (up, down):
                pump.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
        finally:
            self.links.discard(link)
            link.cut()

    async def _up(self, link: Link, reader: asyncio.StreamReader) -> None:
        """Client to server, in units that end where the server begins to act on them."""
        unit = bytearray()
        while True:
            head = await reader.readexactly(5)
            kind, size = head[:1], struct.unpack("!i", head[1:])[0]
            body = await reader.readexactly(size - 4)
            self._note(link, kind, body)
            unit += head + body
            if kind in {b"S", b"Q", b"H", b"X", b"p"}:
                text = (
                    body[:-1].decode()
                    if kind == b"Q"
                    else link.texts.get(link.portal, "")
                    if kind == b"S" and link.executes
                    else ""
                )
                await self._pass(link, bytes(unit), text)
                unit.clear()
                link.executes = False

    @staticmethod
    def _note(link: Link, kind: bytes, body: bytes) -> None:
        if kind == b"P":
            name, text = body.split(b"\0", 2)[:2]
            link.texts[name] = text.decode()
        elif kind == b"B":
            link.portal = body.split(b"\0", 2)[1]
        elif kind == b"E":
            link.executes = True

    async def _pass(self, link: Link, unit: bytes, text: str) -> None:
        await self._gate.wait()
        act = self._judge(link, name_of(text)) if text else ""
        if act == "hole":
            link.lost = True
        if link.lost:
            await asyncio.Event().wait()
        if act == "before":
            link.cut()
            raise ConnectionResetError
        if act.startswith("error:"):
            link.client.write(_error(act.removeprefix("error:")) + b"Z\0\0\0\5I")
            await link.client.drain()
            return
        link.answered.clear()
        link.swallows = act == "after"
        link.server.write(unit)
        await link.server.drain()
        if link.swallows:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await link.answered.wait()
            link.cut()
            raise ConnectionResetError

    def _judge(self, link: Link, name: str) -> str:
        self.counts[name] += 1
        link.listens |= name == "listen"
        self.changed.tell()
        for plan in self._plans:
            if plan.statement == name and plan.of in link.application and not plan.done.is_set():
                plan.seen += 1
                if plan.seen == plan.n:
                    plan.done.set()
                    return plan.act
        return ""

    async def _down(self, link: Link, reader: asyncio.StreamReader) -> None:
        """Server to client."""
        while True:
            head = await reader.readexactly(5)
            body = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
            await self._gate.wait()
            if link.lost:
                await asyncio.Event().wait()
            if not link.swallows:
                link.client.write(head + body)
            if head[:1] == b"Z":
                if not link.swallows:
                    await link.client.drain()
                link.answered.set()


def name_of(text: str) -> str:
    """The door that a statement calls, or its first words."""
    found = _DOOR.search(text)
    return found.group(1) if found else " ".join(text.lower().replace(";", "").split()[:1])


def _error(state: str) -> bytes:
    fields = b"".join(
        kind + value + b"\0"
        for kind, value in ((b"S", b"ERROR"), (b"V", b"ERROR"), (b"C", state.encode()), (b"M", b"the proxy says so"))
    )
    return b"E" + struct.pack("!i", len(fields) + 5) + fields + b"\0"

"""A line to the database that can be counted, cut, and made to swallow everything."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

NAME = ".s.PGSQL.5432"


class Line:
    """Listens in a folder as a PostgreSQL server would, and passes on what comes. `statements`: asked through it, of all connections."""

    def __init__(self, dsn: str, folder: Path) -> None:
        parts = urlsplit(dsn)
        query = dict(parse_qsl(parts.query))
        self._target = Path(query["host"]) / f".s.PGSQL.{query.get('port', '5432')}"
        self._folder = folder
        self.dsn = urlunsplit(parts._replace(query=urlencode(query | {"host": str(folder), "port": "5432"})))
        self.statements = 0
        self.cut = False  # connections are refused
        self.deaf = False  # what the server answers to a statement is lost, once it has executed it; that it has parsed one is not
        self._swallowing = False
        self._links: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._folder / NAME)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        await asyncio.gather(*self._links, return_exceptions=True)

    def drop(self) -> None:
        """End every connection there is."""
        for link in self._links:
            link.cancel()

    def swallow(self) -> None:
        """Connections there are stay open for ever, and nothing passes them any more."""
        self._swallowing = True

    def answer_again(self) -> None:
        """New connections pass; what was swallowed is not given back."""
        self._swallowing = False

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.ensure_future(self._pass(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back: asyncio.StreamWriter | None = None
        try:
            if self.cut:
                return
            answers, back = await asyncio.open_unix_connection(self._target)
            ways = {asyncio.ensure_future(self._up(reader, back)), asyncio.ensure_future(self._down(answers, writer))}
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            for end in (writer, back):
                if end is not None:
                    end.close()
                    with contextlib.suppress(OSError):
                        await end.wait_closed()

    async def _up(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        """Message by message: the first has no letter, each other a letter and a length."""
        first = True
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                letter = b"" if first else await reader.readexactly(1)
                first = False
                size = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(size, "big") - 4)
                self.statements += letter in {b"S", b"Q"}
                await self._on(out, letter + size + body)

    async def _down(self, answers: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await answers.read(65536):
                if not (self.deaf and piece.startswith(b"2")):  # bound, and with it what came of it
                    await self._on(out, piece)

    async def _on(self, out: asyncio.StreamWriter, piece: bytes) -> None:
        if self._swallowing:
            await asyncio.Event().wait()
        out.write(piece)
        await out.drain()

"""A small local HTTP service that prints what is posted to it: the outside world of the example.

Every POST that is answered 201 has appended one line to a file, and the line was on disk before the answer. The press
does **not** look for double keys: posting twice prints twice, so the file is the log of effects that a test counts.

    POST /posts   header Idempotency-Key, body UTF-8 text   → 201 {"url": "/posts/<n>"}
    GET  /posts?key=K                                       → 200 {"url": ...} of the key's first post, or 404
"""

from __future__ import annotations

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs

from .press_http import HEAD_MAX, Refused, Request, read_request, response

KEY_MAX = 200  # characters, printable ASCII
READ_TIMEOUT = 30.0  # seconds for one whole request to arrive


class TornFile(ValueError):
    """The file of an earlier press ends inside a line, so that the next post would be glued to it."""


class Press:
    """A press in the caller's event loop, on a loopback port of its own: `async with Press(path) as press`.

    With `hold_first` the first post is printed, `posted` is set, and its answer waits for `release()`; all others are
    served meanwhile. That is the moment to kill the poster in: the effect is there, and nobody was told. A press that
    is stopped while it holds an answer cuts the connection instead.
    """

    def __init__(self, path: str | Path, *, hold_first: bool = False) -> None:
        self.path = Path(path)
        self.asked: list[str] = []  # the key of every GET, in order
        self.posted = asyncio.Event()  # set once the first post of this press is on disk
        self._released = asyncio.Event()
        self._hold_first = hold_first
        self._printing = asyncio.Lock()
        # A thread of its own: the loop's default threads may all be busy with clients that wait for this one.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="press")
        self._first: dict[str, int] = {}  # key → number of its first post; only what is on disk
        self._count = 0
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()
        self._prints: set[asyncio.Task[int]] = set()
        self.url = ""  # `http://127.0.0.1:<port>` while it runs

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Reads what the file already has, then listens. TornFile if the file ends inside a line."""
        self._remember()
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0, limit=HEAD_MAX)
        port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        """Stops listening and cuts what is open; a line that is being printed is finished first. Twice is once."""
        if self._server is None:
            return
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await asyncio.gather(*self._prints, return_exceptions=True)
        self._thread.shutdown()
        self._server = None

    def release(self) -> None:
        """Lets the held answer go."""
        self._released.set()

    def effects(self) -> int:
        """How many posts were printed, counted in the file itself."""
        return self.path.read_bytes().count(b"\n") if self.path.exists() else 0

    def _remember(self) -> None:
        content = self.path.read_bytes() if self.path.exists() else b""
        if content and not content.endswith(b"\n"):
            raise TornFile(f"{self.path} ends inside a line")
        for line in content.splitlines():
            self._count += 1
            self._first.setdefault(json.loads(line)["key"], self._count)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request, one answer."""
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                request = await read_request(reader)
            status, answer = await self._serve(request)
            writer.write(response(status, answer))
            await writer.drain()
        except Refused as refused:
            writer.write(response(refused.status, {"error": refused.problem}))
        except (OSError, EOFError, TimeoutError):
            pass  # the client has gone, or took too long: no answer, as in life
        except asyncio.CancelledError:
            pass  # only stop() cancels a talk; Python 3.11 would log the cancelled task as an error
        finally:
            writer.close()
            self._talks.discard(talk)

    async def _serve(self, request: Request) -> tuple[HTTPStatus, dict[str, str]]:
        path, _, query = request.target.partition("?")
        if path != "/posts":
            raise Refused(HTTPStatus.NOT_FOUND, "there is only /posts")
        if request.method == "GET":
            return self._find(parse_qs(query).get("key", []))
        if request.method == "POST":
            return await self._post(request)
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and POST")

    def _find(self, keys: list[str]) -> tuple[HTTPStatus, dict[str, str]]:
        if len(keys) != 1:
            raise Refused(HTTPStatus.BAD_REQUEST, "one key is wanted")
        self.asked.append(keys[0])
        number = self._first.get(keys[0])
        if number is None:
            raise Refused(HTTPStatus.NOT_FOUND, "no post has this key")
        return HTTPStatus.OK, {"url": f"/posts/{number}"}

    async def _post(self, request: Request) -> tuple[HTTPStatus, dict[str, str]]:
        key = request.headers.get("idempotency-key", "")
        if not (0 < len(key) <= KEY_MAX and key.isascii() and key.isprintable()):
            raise Refused(HTTPStatus.BAD_REQUEST, f"Idempotency-Key must be 1 to {KEY_MAX} printable ASCII")
        try:
            body = request.body.decode()
        except UnicodeDecodeError:
            raise Refused(HTTPStatus.BAD_REQUEST, "the body is not UTF-8") from None
        # Printing goes on to its end when the talk is cancelled: half a line must not be left behind.
        printing = asyncio.create_task(self._print(key, body))
        self._prints.add(printing)
        printing.add_done_callback(self._prints.discard)
        try:
            number = await asyncio.shield(printing)
        except OSError as error:
            raise Refused(HTTPStatus.INTERNAL_SERVER_ERROR, f"it may not be on disk: {error}") from error
        first = not self.posted.is_set()
        self.posted.set()
        if first and self._hold_first:
            await self._released.wait()
        return HTTPStatus.CREATED, {"url": f"/posts/{number}"}

    async def _print(self, key: str, body: str) -> int:
        async with self._printing:
            number = self._count + 1
            line = json.dumps({"key": key, "body": body, "n": number}, ensure_ascii=False).encode() + b"\n"
            await asyncio.get_running_loop().run_in_executor(self._thread, _append, self.path, line)
            self._count = number
            self._first.setdefault(key, number)
            return number


def _append(path: Path, line: bytes) -> None:
    """One line at the end of the file, and on disk when this returns; half a line is taken back before OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(file).st_size
        if os.write(file, line) != len(line):
            os.ftruncate(file, size)
            raise OSError(f"{path}: only a part of the line could be written")
        os.fsync(file)
    finally:
        os.close(file)

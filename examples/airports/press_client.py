"""What a step says to the press: `post` and `find`, with the standard library only.

Both run `urllib` in a thread that waits at most `timeout` seconds for the next byte. A cancelled call returns at once,
but its thread goes on to the end of the request: a post may still be printed.
"""

from __future__ import annotations

import asyncio
import json
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

TIMEOUT = 10.0  # seconds


class PressRefused(Exception):
    """The press has answered that it does not print this (HTTP 4xx): nothing was printed."""


class PressLost(Exception):
    """No answer that can be understood: a post may have been printed or not, `find` will tell."""


async def post(base_url: str, key: str, body: str, *, timeout: float = TIMEOUT) -> str:
    """Prints `body` under `key`, once more each time it is called; the path of the post, as `/posts/7`.

    PressRefused: not printed. PressLost: not known.
    """
    request = Request(
        f"{base_url}/posts",
        data=body.encode(),
        headers={"Idempotency-Key": key, "Content-Type": "text/plain; charset=utf-8"},
        method="POST",
    )
    status, text = await asyncio.to_thread(_send, request, timeout)
    return _url(status, text, wanted=201)


async def find(base_url: str, key: str, *, timeout: float = TIMEOUT) -> str | None:
    """The path of the first post that was printed under `key`, None if there is none; PressLost: not known."""
    request = Request(f"{base_url}/posts?key={quote(key, safe='')}")
    status, text = await asyncio.to_thread(_send, request, timeout)
    return None if status == 404 else _url(status, text, wanted=200)


def _send(request: Request, timeout: float) -> tuple[int, str]:
    """Status and text of the answer; PressLost if there is none."""
    opener = build_opener(ProxyHandler({}))  # the press is on this machine: a proxy of the environment is not asked
    try:
        with opener.open(request, timeout=timeout) as answer:
            return int(answer.status), answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")
    except (OSError, HTTPException, UnicodeDecodeError) as error:
        raise PressLost(f"{request.full_url}: {error!r}") from error


def _url(status: int, text: str, *, wanted: int) -> str:
    if 400 <= status < 500:
        raise PressRefused(f"HTTP {status}: {text}")
    try:
        url: object = json.loads(text)["url"]
    except (ValueError, LookupError, TypeError) as error:
        raise PressLost(f"HTTP {status}: {text}") from error
    if status != wanted or not isinstance(url, str):
        raise PressLost(f"HTTP {status}: {text}")
    return url

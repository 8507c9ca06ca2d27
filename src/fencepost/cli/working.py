"""What `run` and `plan run` share: a worker in this process for one run, and following it until there is something to tell."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fencepost.cli import say
from fencepost.cli.place import Place
from fencepost.cli.say import DONE

if TYPE_CHECKING:
    from fencepost.app import App
    from fencepost.client import Client, Handle

T = TypeVar("T")
Show = TypeVar("Show")

GRACE_SECONDS: Final = (
    3.0  # for legs of this process, once nobody follows any more: the same command goes on with the run
)

Work = Callable[[asyncio.Event, asyncio.Event], AbstractAsyncContextManager[None]]


async def accompany(
    work: Work | None,
    view: AbstractAsyncContextManager[Show],
    follow: Callable[[Show], Coroutine[Any, Any, T]],
    timeout: float | None,
) -> tuple[T | None, bool]:
    """What following came to, and whether it was interrupted. None: Ctrl-C or SIGTERM, the time-out, or the end of the worker here.

    `work` (see `working`) is done meanwhile. A second Ctrl-C ends its grace.
    """
    interrupted, hurry, broken = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: hurry.set() if interrupted.is_set() else interrupted.set())
    found: T | None = None
    async with contextlib.AsyncExitStack() as stack:
        if work is not None:
            await stack.enter_async_context(work(broken, hurry))
        show = await stack.enter_async_context(view)
        following = asyncio.ensure_future(follow(show))
        leaving = [asyncio.ensure_future(event.wait()) for event in (interrupted, broken)]
        await asyncio.wait({following, *leaving}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in leaving:
            task.cancel()
        if following.done():
            found = following.result()
        else:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    return found, interrupted.is_set()


@contextlib.asynccontextmanager
async def working(
    place: Place, client: Client, app: App, handle: Handle[Any], broken: asyncio.Event, hurry: asyncio.Event
) -> AsyncGenerator[None]:
    """While the block runs this process works on the run and its descendants, and its beat does everybody's sweeps.

    `broken` is set when the worker ended by itself; `hurry` ends its grace.
    """
    from fencepost import terminal
    from fencepost.lanes import Lane
    from fencepost.words import TERMINAL
    from fencepost.worker.loop import run_worker

    outcome = await terminal.watch_outcome(client.db, handle.org, handle.id, None)
    if outcome is None or outcome.status in TERMINAL:
        yield
        return
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    stop = asyncio.Event()
    lane = Lane(await client.lane(), "", client.release)
    ready = asyncio.Event()
    worker = asyncio.ensure_future(
        run_worker(
            app, place.settings, stop=stop, hurry=hurry, only=outcome.rid, lane=lane, grace_seconds=GRACE_SECONDS,
            on_ready=lambda _: ready.set(),
        )
    )  # fmt: skip
    worker.add_done_callback(lambda _: broken.set())
    worker.add_done_callback(lambda _: ready.set())
    await ready.wait()  # by now a run that was parked on other code than this is in the line again
    try:
        yield
    finally:
        stop.set()
        code = await worker
        if code != DONE:
            say.words(f"the worker in this process ended (exit code {code})")

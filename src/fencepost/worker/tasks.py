"""Tasks of author code: which engine they belong to, and that none of them takes the worker along."""

from __future__ import annotations

import asyncio
import functools
from contextvars import Context as Variables
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from fencepost.authoring import _step_key

if TYPE_CHECKING:
    from fencepost.worker.replay import Engine

_engine: ContextVar[Engine | None] = ContextVar("fencepost_engine", default=None)


def current() -> Engine | None:
    """The engine whose code is running; None inside steps and outside workflows."""
    return _engine.get()


def branch_context(engine: Engine) -> Variables:
    """The variables in which a workflow's code runs: tasks it creates are branches."""
    context = engine.outside.copy()
    context.run(_engine.set, engine)
    return context


def watch_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """From now on, tasks that a workflow's code creates on this loop are known as its branches. Idempotent; an earlier factory is kept."""
    before = loop.get_task_factory()
    if getattr(before, "fencepost", False):
        return

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        context = options.get("context")
        engine = context.get(_engine) if context is not None else _engine.get()
        in_step = (context.get(_step_key) if context is not None else _step_key.get(None)) is not None
        inner = coro
        if engine is not None or in_step:
            coro = _contained(inner)
        task: Any = before(loop, coro, **options) if before is not None else asyncio.Task(coro, loop=loop, **options)
        # Cancelled before it began, nothing of it was awaited: `inner` is closed with it.
        if engine is not None:
            engine.code.adopt(task, inner)
        elif in_step:
            task.add_done_callback(functools.partial(_close, inner))
        return task

    make.fencepost = True  # type: ignore[attr-defined]  # a mark on our own function
    loop.set_task_factory(make)


def _close(coroutine: Any, _: object) -> None:
    coroutine.close()


async def _contained(coroutine: Any) -> Any:
    """A task of author code; a request to exit from it ends what it belongs to, never the worker.

    asyncio hands SystemExit of a task on to whoever runs the loop.
    """
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"author code asked the worker to exit: {type(error).__name__}") from error

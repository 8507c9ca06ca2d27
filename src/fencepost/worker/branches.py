"""Branches: the tasks of a workflow's code, what each of them awaits, and where its code is.

asyncio has no public word for "what does this task await". `_fut_waiter` is what the debugger and the task printer use, and the
names of asyncio's own variables below are older than the oldest Python supported; the tests of law 60.11 fail when either changes.
"""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context as Variables
from pathlib import Path
from typing import Any, Final, Literal
from weakref import WeakSet

_Awaited = Iterable[asyncio.Future[Any]]

_HOMES: Final = tuple(f"{Path(file).parent}/" for file in (str(asyncio.__file__), __file__))


def _code(function: object) -> types.CodeType | None:
    code = getattr(function, "__code__", None)
    return code if isinstance(code, types.CodeType) else None


def _of_group(local: dict[str, Any]) -> _Awaited:
    return set(local["self"]._tasks)  # noqa: SLF001 - see above


def _of_wait(local: dict[str, Any]) -> _Awaited:
    return list(local["fs"])


def _of_wait_for(local: dict[str, Any]) -> _Awaited:
    return [local["fut"]]


def _of_completed(local: dict[str, Any]) -> _Awaited:
    # Before 3.13 nothing here leads to them.
    return set(getattr(local.get("self"), "_todo", ()))


def _inner_code(function: object, name: str) -> types.CodeType | None:
    """The code of a function that another one defines inside."""
    code = _code(function)
    constants = code.co_consts if code is not None else ()
    return next((c for c in constants if isinstance(c, types.CodeType) and c.co_name == name), None)


_SHIELD: Final = _inner_code(asyncio.shield, "_outer_done_callback")

# Where asyncio awaits, for its caller, a future of its own that ends with others: code -> which those are.
_PARENTS: Final[dict[types.CodeType, Callable[[dict[str, Any]], _Awaited]]] = {
    code: awaited
    for code, awaited in (
        (_code(asyncio.TaskGroup.__aexit__), _of_group),
        (_code(getattr(asyncio.TaskGroup, "_aexit", None)), _of_group),
        (_code(getattr(asyncio.tasks, "_wait", None)), _of_wait),
        (_code(asyncio.wait_for), _of_wait_for),
        (_inner_code(asyncio.as_completed, "_wait_for_one"), _of_completed),
        (_code(getattr(getattr(asyncio.tasks, "_AsCompletedIterator", None), "_wait_for_one", None)), _of_completed),
    )
    if code is not None
}


# Where asyncio waits for whoever holds a lock, and where for anybody, a thread perhaps.
_LOCKS: Final = frozenset({_code(asyncio.Lock.acquire), _code(asyncio.Semaphore.acquire)})
_QUEUE: Final = asyncio.Queue[Any]
_MEETINGS: Final = frozenset(
    map(_code, (asyncio.Condition.wait, asyncio.Event.wait, _QUEUE.get, _QUEUE.put, _QUEUE.join))
)


def _waiter(task: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    return getattr(task, "_fut_waiter", None)


def _children(future: asyncio.Future[Any]) -> Sequence[asyncio.Future[Any]]:
    """What a gathering future gathers, or a shielding one shields."""
    children: Sequence[asyncio.Future[Any]] | None = getattr(future, "_children", None)
    if children is not None:
        return children
    for callback, _ in getattr(future, "_callbacks", None) or ():
        if _SHIELD is not None and _code(callback) is _SHIELD:
            return [dict(zip(_SHIELD.co_freevars, callback.__closure__, strict=True))["inner"].cell_contents]
    return ()


def is_blocked(task: asyncio.Task[Any]) -> bool:
    """Nothing of the task runs in the coming turn of the loop."""
    waiter = _waiter(task)
    return waiter is not None and not waiter.done() and not _is_about_to_end(waiter)


def _is_about_to_end(waiter: asyncio.Future[Any]) -> bool:
    """A gathering future whose children have all ended, and whose callback has not run yet. (One failed child is seen in QUIET_TURNS.)"""
    children = _children(waiter)
    return bool(children) and (all(c.done() for c in children) or any(_is_about_to_end(c) for c in children))


def watches(task: asyncio.Task[Any], branches: set[asyncio.Task[Any]]) -> bool:
    """It awaits branches and nothing else, itself or through asyncio's gather, wait, wait_for, shield, TaskGroup or as_completed."""
    waiter = _waiter(task)
    if waiter is None or waiter.done():
        return False
    if _is_branch(waiter, branches):
        return True
    for code, local in _frames(task):
        if code in _PARENTS:
            awaited = [one for one in _PARENTS[code](local) if isinstance(one, asyncio.Future) and not one.done()]
            if awaited or _PARENTS[code] is _of_completed:
                return all(_is_branch(future, branches) for future in awaited)
    return False


def _is_branch(future: asyncio.Future[Any], branches: set[asyncio.Task[Any]]) -> bool:
    if future.done() or future in branches:
        return True
    children = _children(future)
    return bool(children) and all(_is_branch(child, branches) for child in children)


def _frames(task: asyncio.Task[Any]) -> Iterator[tuple[types.CodeType, dict[str, Any]]]:
    """Where a task's code stands, from the outermost coroutine to the innermost."""
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield frame.f_code, frame.f_locals
        coroutine = coroutine.cr_await


def where(task: asyncio.Task[Any]) -> str:
    """Words for where the author's code of a task stands: the innermost place that is neither asyncio's nor ours."""
    place = task.get_name()
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if not frame.f_code.co_filename.startswith(_HOMES):
            place = f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
        coroutine = coroutine.cr_await
    return place


def _nothing(*_: object) -> None:
    return None


class Branches:
    """The branches of one leg's code. `stir` is called whenever one of them may stand otherwise than before; `ended` with one that has
    ended, which is such a time.
    """

    def __init__(
        self, stir: Callable[[], None], ended: Callable[[asyncio.Task[Any]], None], outside: Variables
    ) -> None:
        self.all: set[asyncio.Task[Any]] = set()
        self.inside: set[asyncio.Task[Any]] = set()  # those at a boundary
        self._stir = stir
        self._ended = ended
        self._outside = outside
        self._watched: WeakSet[asyncio.Future[Any]] | None = None

    def adopt(self, task: asyncio.Task[Any], coroutine: Any) -> None:
        """A task of the workflow's code; the coroutine that it runs is closed when it ends, for it may not have begun."""
        self.all.add(task)
        task.add_done_callback(functools.partial(self._left, coroutine))
        self._stir()

    def close(self) -> None:
        """Nobody looks at them any more."""
        self._stir = self._ended = _nothing

    def _left(self, coroutine: Any, task: asyncio.Task[Any]) -> None:
        coroutine.close()
        self.all.discard(task)
        self.inside.discard(task)
        self._ended(task)

    def waits(self, task: asyncio.Task[Any]) -> bool:
        """A branch waits when it is at a boundary or awaits branches; one that awaits anything else is running (law 60.11)."""
        return task in self.inside or watches(task, self.all)

    def running_on(self) -> str | None:
        """Words for a branch that runs: where its code is. None: every branch waits."""
        for task in self.all:
            if not self.waits(task):
                return where(task)
        return None

    def at_rest(self) -> bool:
        """Nothing of the code runs in the coming turn of the loop."""
        return all(task in self.inside or is_blocked(task) for task in self.all)

    def standing(self) -> Literal["runs", "locked", "met"]:
        """Of the branches that do not wait: one `runs`; or all stand at locks, events or queues, `locked`: one at least at a lock."""
        places = [{code for code, _ in _frames(task)} for task in self.all if not self.waits(task)]
        if not all(codes & (_LOCKS | _MEETINGS) for codes in places):
            return "runs"
        return "locked" if any(codes & _LOCKS for codes in places) else "met"

    def all_wait(self) -> bool:
        """Every branch waits. One that does not is looked at again when what it awaits has ended: it may wait then."""
        running = [task for task in self.all if not self.waits(task)]
        for task in running:
            awaited = _waiter(task)
            if self._watched is None:  # most legs never need one, and it is slow to make
                self._watched = WeakSet()
            if awaited is not None and awaited not in self._watched:
                self._watched.add(awaited)
                awaited.add_done_callback(lambda _: self._stir(), context=self._outside)
        return not running

"""The threads in which sync steps run.

A thread cannot be stopped. What nobody waits for any more uses its thread up until it ends by itself, and what has not begun
never begins. They are daemons: a step that hangs does not keep the worker's process from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class _Item:
    """One call, and the task that asked for it."""

    __slots__ = ("call", "future", "lost", "task")

    def __init__(self, call: Callable[[], Any], task: asyncio.Task[Any] | None) -> None:
        self.call = call
        self.task = task
        self.future: Future[Any] = Future()
        self.lost = False


class StepThreads(ThreadPoolExecutor):
    """At most `most` threads. `used_up` is called on the loop with a step's name when the last one is lost to a hung step."""

    def __init__(self, most: int, used_up: Callable[[str], None]) -> None:
        super().__init__(max_workers=most)
        self._most = most
        self._on_used_up = used_up
        self._line: SimpleQueue[_Item | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._items: dict[asyncio.Task[Any], _Item] = {}
        self._started = 0
        self._waiting = 0  # threads without an item, less items without a thread
        self.lost = 0
        self.freed = 0  # how often a thread has come back from a call

    @property
    def used_up(self) -> bool:
        """No thread is left: each runs a step that nobody waits for any more."""
        return self.lost >= self._most

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run it in a thread, now or when one is free."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # asked from outside a loop
            task = None
        item = _Item(lambda: fn(*args, **kwargs), task)
        with self._lock:
            if task is not None:
                self._items[task] = item
            self._waiting -= 1
            if self._waiting < 0 and self._started < self._most:
                self._started += 1
                self._waiting += 1
                threading.Thread(target=self._work, name=f"fencepost step {self._started}", daemon=True).start()
        self._line.put(item)
        return item.future

    def lose(self, step: str) -> bool:
        """The running task waits no more for the step it gave to a thread: not begun, it never begins. True when that is so."""
        task = asyncio.current_task()
        with self._lock:
            item = self._items.pop(task, None) if task is not None else None
            if item is None:
                return False
            if item.future.cancel():
                return True
            if item.future.done():
                return False
            item.lost = True
            self.lost += 1
        if self.used_up:
            self._on_used_up(step)
        return False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - the base's signature; nobody can wait for a hung step
        """Let idle threads end; nothing is waited for."""
        with self._lock:
            for _ in range(self._started):
                self._line.put(None)

    def _work(self) -> None:
        while (item := self._line.get()) is not None:
            if item.future.set_running_or_notify_cancel():
                try:
                    answer = item.call()
                except BaseException as error:  # whatever author code raises is the step's
                    self._free(item)
                    item.future.set_exception(error)
                else:
                    self._free(item)
                    item.future.set_result(answer)
            else:
                self._free(item)
            del item

    def _free(self, item: _Item) -> None:
        with self._lock:
            self._waiting += 1
            self.freed += 1
            if item.lost:
                self.lost -= 1
            if item.task is not None and self._items.get(item.task) is item:
                del self._items[item.task]

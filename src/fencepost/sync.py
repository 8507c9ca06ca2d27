"""The small synchronous client: start, result, signal, cancel, for code that has no event loop.

    with Client.from_settings() as client:
        print(client.start(enrich, Sheet(path="rows.csv")).result(timeout=60))

One thread of its own runs one event loop; any number of threads may use the client at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from fencepost import client as asynchronous
from fencepost.authoring import Workflow
from fencepost.words import Source, Status

if TYPE_CHECKING:
    from fencepost.planning import Definition, Plan
    from fencepost.settings import Settings

__all__ = ["Client", "Handle"]

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")


class _Loop:
    """A thread that runs an event loop; `wait` for a coroutine there, from any other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fencepost-client", daemon=True)
        self._thread.start()
        self.ended = False

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine gives. Ctrl-C in the waiting thread gives up what it waited for."""
        if self.ended:
            coroutine.close()
            raise RuntimeError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """Stop the thread."""
        self.ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Client:
    """The asynchronous client, awaited on a thread of its own. `close()` it, or use `with`."""

    def __init__(self, make: Callable[[], asynchronous.Client]) -> None:
        """`make`: gives the asynchronous client; it is called on the client's own thread."""
        self._loop = _Loop()
        try:
            self._client = self._loop.wait(_made(make))
        except BaseException:
            self._loop.end()
            raise

    @classmethod
    def from_settings(cls, settings: Settings | None = None, *, release: str | None = None) -> Self:
        """A client of the database that the settings name. Raises BadSettings, which names everything that is missing."""
        return cls(lambda: asynchronous.Client.from_settings(settings, release=release))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and end the thread. Again: nothing happens."""
        if not self._loop.ended:
            self._loop.wait(self._client.close())
            self._loop.end()

    @overload
    def start(
        self, workflow: Workflow[None, Out], /, *, id: str | None = None, org: str = "default", source: Source = "program",
        priority: int | None = None, delay: timedelta | float | None = None,
    ) -> Handle[Out]: ...  # fmt: skip
    @overload
    def start(
        self, workflow: Workflow[In, Out], input: In, /, *, id: str | None = None, org: str = "default", source: Source = "program",
        priority: int | None = None, delay: timedelta | float | None = None,
    ) -> Handle[Out]: ...  # fmt: skip
    def start(
        self, workflow: Workflow[Any, Out], input: Any = None, /, *, id: str | None = None, org: str = "default",
        source: Source = "program", priority: int | None = None, delay: timedelta | float | None = None,
    ) -> Handle[Out]:  # fmt: skip
        """Admit a run, once. Raises as `fencepost.Client.start` does."""
        handle: asynchronous.Handle[Out] = self._loop.wait(
            self._client.start(workflow, input, id=id, org=org, source=source, priority=priority, delay=delay)
        )
        return Handle(self._loop, handle)

    def start_plan(
        self, plan: Plan | Definition, /, *, id: str | None = None, org: str = "default", source: Source = "program",
        priority: int | None = None,
    ) -> Handle[Any]:  # fmt: skip
        """Admit a plan, once. Raises as `fencepost.Client.start_plan` does."""
        starting = self._client.start_plan(plan, id=id, org=org, source=source, priority=priority)
        return Handle(self._loop, self._loop.wait(starting))

    @overload
    def handle(self, run_id: str, /, *, org: str = "default", returns: Workflow[Any, Out]) -> Handle[Out]: ...
    @overload
    def handle(self, run_id: str, /, *, org: str = "default", returns: type[Out]) -> Handle[Out]: ...
    @overload
    def handle(self, run_id: str, /, *, org: str = "default", returns: None = None) -> Handle[Any]: ...
    def handle(self, run_id: str, /, *, org: str = "default", returns: Any = None) -> Handle[Any]:
        """A handle on a run by its id. `returns`: its workflow, or the type of its output."""
        return Handle(self._loop, self._client.handle(run_id, org=org, returns=returns))


class Handle(Generic[Out]):
    """A run, by its id and organisation. Every method waits for its answer."""

    def __init__(self, loop: _Loop, handle: asynchronous.Handle[Out]) -> None:
        self.id = handle.id
        self.org = handle.org
        self._loop = loop
        self._handle = handle

    def status(self) -> Status:
        """The run's status word now. Raises RunNotFound."""
        return self._loop.wait(self._handle.status())

    def result(self, timeout: float | None = None) -> Out:
        """What the workflow returned, once the run has ended. Raises as `fencepost.Handle.result` does."""
        return self._loop.wait(self._handle.result(timeout))

    def signal(self, name: str, payload: object = None, *, dedupe: str | None = None) -> Literal["sent", "repeated"]:
        """Send a signal. Raises RunNotFound, SignalRefused, Unstorable."""
        return self._loop.wait(self._handle.signal(name, payload, dedupe=dedupe))

    def cancel(self, reason: str = "") -> Literal["accepted", "too_late"]:
        """Cancel the run and its descendants. Raises RunNotFound, Unstorable (the reason)."""
        return self._loop.wait(self._handle.cancel(reason))


async def _made(make: Callable[[], asynchronous.Client]) -> asynchronous.Client:
    return make()

"""Execution: author code of a step, once or as often as its declaration allows, and its look-up.

Nothing here writes to the database: what came of it is an answer, and whoever asked records it.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from fencepost import faults, notes, values
from fencepost.authoring import Absent, Found, Retry, Step, Unknown, _step_key
from fencepost.db import Database
from fencepost.errors import StepFailed
from fencepost.words import Fence

LOOKUP_TRIES: Final = 3
DECLARED_CHARS: Final = (
    2000  # of a declared error's message, and of its arguments as JSON: six bytes each at worst, below ERROR_BYTES
)
LOOKUP_PAUSE_SECONDS: Final = 0.2


def _nothing(*_: object) -> None:
    return None


def _no(*_: object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class WorkerFace:
    """What a leg needs of its worker. `on_thread_lost`: nobody waits any more for the step of this name that the running task gave to
    a thread; True when it is certain that it never began and never will. `said`: its newest progress that may not have been shown yet.
    `over`: nothing of the attempt is to be said any more. `cancelled`: the worker itself is being cancelled, with every task of its loop
    perhaps (as asyncio.run does at its end): what a leg's tasks meet then says nothing about the run.
    """

    db: Database
    threads: ThreadPoolExecutor
    lease_seconds: float
    on_thread_lost: Callable[[str], bool] = _no
    publish: Callable[[], None] = _nothing
    progress: Callable[[Fence, str], None] = _nothing
    said: Callable[[Fence], str | None] = _nothing
    over: Callable[[Fence], None] = _nothing
    cancelled: Callable[[], bool] = _no
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)


@dataclass(frozen=True, slots=True)
class Ran:
    """It returned; `text` is the value as it will be stored."""

    text: str


@dataclass(frozen=True, slots=True)
class Broke:
    """It raised after its retries, or its value cannot be stored; `text` is the error as it will be stored."""

    text: str


@dataclass(frozen=True, slots=True)
class OutOfSight:
    """Timed out inside a step that is not repeatable: what became of it is not known here (law 50.10)."""

    why: str


Outcome = Ran | Broke | OutOfSight


@dataclass(slots=True)
class Threads:
    """Sync steps of a leg that still run, though nobody may wait for them any more: a cancel is final only when they have ended (80.4)."""

    running: set[asyncio.Future[Any]] = field(default_factory=set[asyncio.Future[Any]])
    _unbegun: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])

    def took_back(self, task: asyncio.Task[Any]) -> None:
        """The call that this task waited for was taken out of the line before a thread had it."""
        self._unbegun.add(task)

    def never_began(self, task: asyncio.Task[Any]) -> bool:
        """That is how this task's try has ended. Asked once after each."""
        if task not in self._unbegun:
            return False
        self._unbegun.discard(task)
        return True

    async def wait(self) -> None:
        if self.running:
            await asyncio.wait(set(self.running))


async def execute(
    face: WorkerFace, threads: Threads, step: Step[..., Any], key: object, args: tuple[Any, ...], kwargs: dict[str, Any],
    *, may_go_on: Callable[[], Awaitable[bool]] | None = None,
) -> Outcome:  # fmt: skip
    """Run a step's function until it returns, fails for good, or goes out of sight. A cancellation passes through.

    `key`: its text is the call's key. `may_go_on`: asked before every further try; False ends it with the failure of the last.

    What counts is whether the branch was cancelled or timed out, not what the function made of it: an exception that it raises
    then says nothing about what happened (law 50.10). A value that it returns all the same is one.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    failed = 0
    while True:
        if faults.hook is not None:
            await faults.reach("step.begin", step=step.name, key=str(key))
        scope = None if step.timeout is None else asyncio.timeout(step.timeout)
        try:
            if scope is None:
                value = await _call(face, threads, step, key, args, kwargs)
            else:
                async with scope:
                    value = await _call(face, threads, step, key, args, kwargs)
        except BaseException as error:
            unbegun = threads.never_began(task)
            if task.cancelling() > before or isinstance(error, GeneratorExit):
                raise
            expired = scope is not None and scope.expired()
            if not unbegun and (why := _out_of_sight(step, error, expired=expired)) is not None:
                return OutOfSight(why)
            doc, problem = _judge(step, error, timed_out=expired, unbegun=unbegun)
        else:
            if faults.hook is not None:
                await faults.reach("step.end", step=step.name, key=str(key))
            return _encoded(value)
        failed += 1
        retry = step.retry
        if retry is None or failed >= retry.tries or not isinstance(problem, retry.on):
            return Broke(doc)
        asked = _asked(step, retry, problem)
        if asked > retry.most:
            return Broke(doc)
        notes.say(
            "step.retry", step=step.name, failed=failed, error=values.describe_error(problem, "STEP_FAILED")["message"]
        )
        pause = max(asked, retry.pause(failed, random.random()))
        await asyncio.sleep(pause)  # waits: the author's declared back-off, or what the other side asked for
        if may_go_on is not None and not await may_go_on():
            return Broke(doc)


def _asked(step: Step[..., Any], retry: Retry, problem: BaseException) -> float:
    """Seconds that the other side asks to be left alone. The error path never fails on author code (law 00.5)."""
    try:
        return retry.asked(problem) if isinstance(problem, Exception) else 0.0
    except Exception as error:
        notes.say("step.after", step=step.name, error=values.describe_error(error, "STEP_FAILED")["message"])
        return 0.0


def _out_of_sight(step: Step[..., Any], error: BaseException, *, expired: bool) -> str | None:
    """Why nobody knows what this try has done; None when what it raised says so."""
    if not step.repeatable and (expired or isinstance(error, asyncio.CancelledError)):
        return f"timed out after {step.timeout} s" if expired else "cancelled from within"
    if isinstance(error, step.unknown_on):
        return f"raised {type(error).__name__}, declared to leave it unknown"
    return None


def _judge(step: Step[..., Any], error: BaseException, *, timed_out: bool, unbegun: bool) -> tuple[str, BaseException]:
    """A failed try: as it will be stored, and as a retry rule sees it. `unbegun`: no thread was free in its time."""
    if timed_out and isinstance(error, TimeoutError):
        within = f"within {step.timeout} s"
        error = TimeoutError(
            f"it did not begin {within}: no thread was free" if unbegun else f"it did not return {within}"
        )
        return describe(step, error, "TIMED_OUT"), error
    if isinstance(error, SystemExit | KeyboardInterrupt):
        error = RuntimeError(f"author code asked the worker to exit: {type(error).__name__}")
    elif isinstance(error, asyncio.CancelledError):
        error = RuntimeError("the step's code was cancelled from within")
    return describe(step, error), error


async def _call(
    face: WorkerFace, threads: Threads, step: Step[..., Any], key: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if step.is_async:
        token = _step_key.set(key)
        try:
            return await step.function(*args, **kwargs)
        finally:
            _step_key.reset(token)
    variables = contextvars.copy_context()
    variables.run(_step_key.set, key)
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(face.threads, lambda: variables.run(step.function, *args, **kwargs))
    threads.running.add(future)
    future.add_done_callback(threads.running.discard)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not future.done():
            if face.on_thread_lost(step.name):
                task = asyncio.current_task()
                assert task is not None
                threads.took_back(task)
            future.add_done_callback(_swallow)
        raise


def _swallow(future: asyncio.Future[Any]) -> None:
    """A thread that nobody waits for any more has ended; its exception is nobody's."""
    if not future.cancelled():
        future.exception()


def _encoded(value: object) -> Outcome:
    try:
        return Ran(values.encode(value))
    except values.Unstorable as error:
        return Broke(values.unstorable_result(error, value))


def describe(step: Step[..., Any], error: BaseException, code: str = "STEP_FAILED") -> str:
    """The failure as it is stored. Of a declared class also its arguments, where they can be: it is raised again as itself."""
    doc: dict[str, Any] = {**values.describe_error(error, code)}
    declared = next((one for one in step.errors if type(error) is one), None)
    if declared is not None:
        # Its name must not be lost to the bound of an error's text (15 KiB of quotes are 30 KiB of JSON).
        doc |= {"declared": declared.__qualname__, "message": doc["message"][:DECLARED_CHARS]}
        try:
            args = values.encode(list(error.args), limit=DECLARED_CHARS)
        except values.Unstorable:
            args = values.encode([doc["message"]])
        doc["args"] = values.decode(args, list[Any])
    return values.encode_error(doc)


def failure(step: Step[..., Any], text: str) -> Exception:
    """The exception that code sees for a stored failure, on the first pass and on every replay (law 50.10)."""
    doc: dict[str, Any] = values.decode(text, dict[str, Any])
    for declared in step.errors:
        if doc.get("declared") == declared.__qualname__:
            args = doc.get("args", ())
            try:
                return declared(*args)
            except Exception:  # its constructor takes something else than it hands on to Exception
                error = declared.__new__(declared, *args)
                error.args = tuple(args)
                return error
    return StepFailed(doc.get("code", "STEP_FAILED"), doc.get("message", ""), step=step.name, type=doc.get("type", ""))


def found_value(answer: Found[Any]) -> Ran:
    """The value that a look-up found, as it will be stored; `look_up` has seen that it can be."""
    return Ran(values.encode(answer.value))


async def look_up(
    step: Step[..., Any], key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Found[Any] | Absent | Unknown:
    """Ask a step's look-up. One that raises, times out or answers nonsense, after its retries, is Unknown (law 50.11)."""
    if step.lookup is None:
        return Unknown()
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    for turn in range(LOOKUP_TRIES):
        if turn:
            pause = LOOKUP_PAUSE_SECONDS * 2**turn * (0.5 + random.random() / 2)
            await asyncio.sleep(pause)  # waits: a provider recovers by itself
        try:
            async with asyncio.timeout(step.lookup_timeout):
                call: Awaitable[object] = step.lookup(key, *args, **kwargs)
                answer = await call
            if not _is_answer(answer):
                raise TypeError(f"answered {type(answer).__name__}, not Found, Absent or Unknown")
            if isinstance(answer, Found):
                # What the step's own type cannot read is no value of it: kept, it would stop every replay.
                values.decode(found_value(answer).text, step.returns)
        except BaseException as error:
            if task.cancelling() > before or isinstance(error, GeneratorExit):
                raise
            notes.say("lookup.failed", step=step.name, error=values.describe_error(error, "STEP_FAILED")["message"])
        else:
            return answer
    return Unknown()


async def look_up_mark(
    step: Step[..., Any], key: str, args: tuple[Any, ...], kwargs: dict[str, Any], known: Found[Any] | Absent | Unknown | None,
    gone_ms: Callable[[], Awaitable[int | None]],
) -> Found[Any] | Absent | Unknown:  # fmt: skip
    """What is known of a mark that an earlier attempt left. Absent only where that permits a run: else it is Unknown (law 50.11).

    `known`: what its look-up said already. `gone_ms`: milliseconds since the death of the mark's holder was confirmed; None while it is not.
    """
    answer = known or await look_up(step, key, args, kwargs)
    if isinstance(answer, Absent) and not step.key_honoured:
        gone = await gone_ms()
        if gone is None:
            return Unknown()
        left = max(0.0, step.settle - gone / 1000)
        await asyncio.sleep(left)  # waits: what a dead holder sent may still arrive
        answer = await look_up(step, key, args, kwargs)
    return answer


def _is_answer(said: object) -> TypeGuard[Found[Any] | Absent | Unknown]:
    return isinstance(said, Found | Absent | Unknown)

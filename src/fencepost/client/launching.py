"""A launch before the door: its words are judged, its input becomes text as given, and concurrent launches leave together."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from fencepost import admission, limits
from fencepost.admission import Admission, Launch
from fencepost.authoring import Workflow
from fencepost.db import Database
from fencepost.decoding import Undecodable, decode, is_model
from fencepost.errors import DatabaseUnavailable, LaunchRefused
from fencepost.hot import weight
from fencepost.values import check_name, encode
from fencepost.words import SOURCES


def judge_words(run_id: str, org: str, source: str) -> None:
    """Raises LaunchRefused for an id, an organisation or a source that cannot be stored (law 30.6)."""
    try:
        check_name(run_id, "a run's id")
        check_name(org, "an organisation")
    except ValueError as error:
        raise LaunchRefused(str(error)) from None
    if source not in SOURCES:
        raise LaunchRefused(f"source {source!r} is none of {', '.join(SOURCES)}")


def as_given(value: object, type_: Any) -> str:
    """The input's text, as it was given: a model's defaults are no part of the launch (law 30.4).

    A field of a pydantic model that nobody set is left out, where reading the text back fills in the very same value; a default
    that is another each time (a new id, an instant) stays in. Other classes do not tell what was given: they are kept whole.
    Raises Unstorable, with the path.
    """
    whole = encode(value)
    if not _has_model(value):
        return whole
    given = msgspec.json.encode(_without_defaults(value, json.loads(whole))).decode()
    if given == whole:
        return whole
    try:
        same = encode(decode(given, type(value) if type_ is Any else type_)) == whole
    except (Undecodable, TypeError, ValueError):
        same = False
    return given if same else whole


def judge_input(workflow: Workflow[Any, Any], text: str) -> None:
    """Raises Undecodable, with the path, unless the JSON text fits the input that the workflow declares."""
    if workflow.takes_input:
        decode(text, workflow.input_type)
    elif text != "null":
        raise Undecodable(f"workflow {workflow.name}", "$: the workflow takes no input")


def _has_model(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_model, cast("Iterable[object]", value)))
    if isinstance(value, dict):
        return any(map(_has_model, cast("dict[str, object]", value).values()))
    return _is_set_model(value)


def _is_set_model(value: object) -> bool:
    return is_model(type(value)) and hasattr(value, "model_fields_set")


def _without_defaults(value: object, dumped: object) -> object:
    """What was dumped, less the fields of models that nobody set. Where a dump has a shape of its own it stays as it is."""
    if _is_set_model(value) and isinstance(dumped, dict):
        return _as_set(value, cast("dict[str, object]", dumped))
    if isinstance(value, list | tuple) and isinstance(dumped, list):
        given, inside = list(cast("Iterable[object]", value)), cast("list[object]", dumped)
        same = len(given) == len(inside)
        return [_without_defaults(v, d) for v, d in zip(given, inside, strict=True)] if same else inside
    if not isinstance(dumped, dict):
        return dumped
    fields = cast("dict[str, object]", dumped)
    if isinstance(value, dict):
        parts = cast("dict[str, object]", value)
        return {key: _without_defaults(parts.get(key), part) for key, part in fields.items()}
    return fields


def _as_set(model: Any, fields: dict[str, object]) -> dict[str, object]:
    """A model's fields, without those that nobody set."""
    unset = set(model.__class__.model_fields) - set(model.model_fields_set)
    return {key: _without_defaults(getattr(model, key, None), part) for key, part in fields.items() if key not in unset}


@dataclass(slots=True)
class _Waiting:
    launch: Launch
    answer: asyncio.Future[Admission]


class Desk:
    """Concurrent launches leave together, without waiting for company: one in flight, the next batch gathers behind it.

    The next batch is sent before the callers of the last one are woken. A batch that cannot be answered together (one of its
    launches meets a twin that is not committed yet, or cannot be stored) is asked again one by one (law 00.13).
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._queue: deque[_Waiting] = deque()
        self._busy = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def admit(self, launch: Launch) -> Admission:
        """Admit a launch; raises what admission.admit raises of it alone."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(launch, loop.create_future())
        self._queue.append(waiting)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._send_next)
        return await waiting.answer

    def _send_next(self) -> None:
        batch: list[_Waiting] = []
        size = 0
        while self._queue and len(batch) < limits.COALESCE_ITEMS_MAX:
            head = self._queue[0]
            more = weight(head.launch.input)
            if batch and size + more > limits.COALESCE_BYTES_MAX:
                break
            self._queue.popleft()
            if not head.answer.done():  # its caller went away before it was sent
                batch.append(head)
                size += more
        self._busy = bool(batch)
        if batch:
            self._spawn(self._run(batch))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: list[_Waiting]) -> None:
        answers: list[Admission] = []
        problem: Exception | None = None
        try:
            answers = await admission.admit_together(self._db, [waiting.launch for waiting in batch])
        except asyncio.CancelledError:
            for waiting in batch:
                _refuse(waiting, DatabaseUnavailable(_CLOSED))
            raise
        except Exception as error:
            problem = error
        finally:
            self._send_next()
        if problem is not None:
            for waiting in batch:
                if admission.goes_apart(problem, len(batch)):
                    self._spawn(self._alone(waiting))
                else:
                    _refuse(waiting, problem)
            return
        for waiting, answer in zip(batch, answers, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(answer)

    async def _alone(self, waiting: _Waiting) -> None:
        try:
            answer = await admission.admit_alone(self._db, waiting.launch)
        except asyncio.CancelledError:
            _refuse(waiting, DatabaseUnavailable(_CLOSED))
            raise
        except Exception as error:
            _refuse(waiting, error)
            return
        if not waiting.answer.done():
            waiting.answer.set_result(answer)

    def stop(self) -> None:
        """End what is under way; its callers are told that nobody here knows what became of it."""
        for waiting in self._queue:
            _refuse(waiting, DatabaseUnavailable(_CLOSED))
        self._queue.clear()
        for task in self._tasks:
            task.cancel()


_CLOSED: Final = "the client was closed while the launch was under way: start it again with the same id"


def _refuse(waiting: _Waiting, error: Exception) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)

"""What a caller holds of a run: its end, its signals, its cancel, its events, and the words for why it waits."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

from fencepost import limits, terminal
from fencepost.db import Database
from fencepost.decoding import decode
from fencepost.errors import RunCancelled, RunFailed, RunNotFound, RunUnknown, SignalRefused
from fencepost.terminal import Outcome
from fencepost.values import encode
from fencepost.words import TERMINAL, Status

if TYPE_CHECKING:
    from fencepost.client.ears import Ears
    from fencepost.ledger import Event

Out = TypeVar("Out")

ENDS: Final = frozenset({"run.completed", "run.failed", "run.cancelled"})
PAGE: Final = 10_000  # events: every page looks through all rows of the run's maps


class Handle(Generic[Out]):
    """A run, by its id and organisation. `result()` gives what its workflow returns; nothing is asked before it is needed."""

    def __init__(self, db: Database, ears: Ears, org: str, run_id: str, returns: Any, *, bounded: bool = True) -> None:
        self.id = run_id
        self.org = org
        self.db = db
        self._ears = ears
        self._returns = returns
        self._bounded = bounded  # its source may have a claim bound: whoever waits may ask for the verdict (law 30.8)

    def __repr__(self) -> str:
        return f"Handle(id={self.id!r}, org={self.org!r})"

    async def status(self) -> Status:
        """The run's status word now. Raises RunNotFound."""
        return cast("Status", (await self._look(None)).status)

    async def result(self, timeout: float | None = None) -> Out:
        """What the workflow returned, once the run has ended.

        Raises RunFailed, RunCancelled, RunUnknown (at once: it may stay so until somebody resolves it), TimeoutError after `timeout`
        seconds (the run goes on), RunNotFound, Undecodable (the stored output does not fit the declared type).
        """
        async with asyncio.timeout(timeout):
            outcome = await self._settled()
        error: dict[str, Any] = json.loads(outcome.error) if outcome.error else {}
        match outcome.status:
            case "completed":
                return cast("Out", None if outcome.output is None else decode(outcome.output, self._returns))
            case "cancelled":
                raise RunCancelled(self.id, str(error.get("message", "")))
            case "failed":
                raise RunFailed(self.id, str(error.get("code", "")), str(error.get("message", "")), error)
            case _:
                raise RunUnknown(self.id, error)

    async def signal(
        self, name: str, payload: object = None, *, dedupe: str | None = None
    ) -> Literal["sent", "repeated"]:
        """Send a signal. One id is minted a call, so that a call repeated below the surface delivers it once (law 60.3).

        `dedupe`: your own id, for repeats that you make yourself; the second is answered `repeated`.
        Raises RunNotFound, SignalRefused, Unstorable.
        """
        from fencepost import suspension

        text = encode(payload)
        encode(name)
        answer = await suspension.signal(
            self.db, self.org, self.id, name, dedupe=dedupe or uuid.uuid4().hex, payload=text
        )
        if answer == "unknown_run":
            raise RunNotFound(self.id, self.org)
        if answer == "sent" or answer == "repeated":  # noqa: PLR1714 - narrows the type
            return answer
        raise SignalRefused(self.id, name, answer)

    async def cancel(
        self, reason: str = "", *, grace: float = limits.GRACE_ON_CANCEL_SECONDS
    ) -> Literal["accepted", "too_late"]:
        """Cancel the run and its descendants. After `accepted` it can only end cancelled; `grace`: seconds its code has to stop.

        Raises RunNotFound, Unstorable (the reason).
        """
        encode(reason)
        answer, _ = await terminal.cancel(self.db, self.org, self.id, reason=reason, grace_ms=int(grace * 1000))
        if answer == "unknown_run":
            raise RunNotFound(self.id, self.org)
        return answer

    async def watch(self, after: int = 0, *, rows: bool = True) -> AsyncIterator[Event]:
        """Every event after sequence `after`, in order, none twice, ending after the terminal one (law 90.2). `rows` False: without what
        became of a map's rows, of which there may be a million. Raises RunNotFound.
        """
        from fencepost import ledger

        async with self._ears.hear() as ear:
            while True:
                status = (await self._look(ear.channel)).status
                await self._judge_bound(status)
                ended = status in TERMINAL  # seen before the read: what ended it is in what is read
                events = await ledger.read_events(self.db, self.org, self.id, after=after, limit=PAGE, rows=rows)
                for event in events:
                    after = event.seq
                    yield event
                    if event.type in ENDS:
                        return
                if events:
                    ear.fresh()
                elif ended:
                    return
                if len(events) < PAGE:
                    await ear.wait()

    async def explain(self) -> str:
        """Why the run stands where it stands, in words (law 90.4). Raises RunNotFound."""
        from fencepost import explain, ledger

        document = await ledger.read_run(self.db, self.org, self.id)
        if document is None:
            raise RunNotFound(self.id, self.org)
        return "\n".join(explain.words(document))

    async def _look(self, channel: str | None) -> Outcome:
        outcome = await terminal.watch_outcome(self.db, self.org, self.id, channel)
        if outcome is None:
            raise RunNotFound(self.id, self.org)
        return outcome

    async def _settled(self) -> Outcome:
        """The outcome of the run once it is terminal or unknown."""
        async with self._ears.hear() as ear:
            while True:
                outcome = await self._look(ear.channel)
                if outcome.status in TERMINAL or outcome.status == "unknown":
                    return outcome
                if not await self._judge_bound(outcome.status):
                    await ear.wait()

    async def _judge_bound(self, status: str) -> bool:
        """Whoever waits asks whether the claim bound is over; True when that ended the run now (laws 30.8, 30.9)."""
        return status == "queued" and self._bounded and await terminal.judge_bound(self.db, self.org, self.id)

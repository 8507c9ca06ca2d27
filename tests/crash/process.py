"""What a forked process is: a worker, a client that admits and signals and cancels, or somebody who migrates or forgets.

Only the way in which a worker starts its heartbeat differs from a user's worker: by a fork instead of a new interpreter, for speed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from fencepost import faults
from fencepost.settings import read_settings
from fencepost.worker import heartbeat, process, pulse
from fencepost.worker.commands import orders
from fencepost.worker.loop import Worker
from tests.crash import boundaries, effects
from tests.crash.boundaries import Boundary, Watch
from tests.crash.scenarios import SCENARIOS, apps
from tests.crash.zygote import die_with_parent


def main(order: dict[str, Any]) -> int:
    """Be what the order says; the exit code."""
    logging.basicConfig(
        filename=order["log"],
        level=logging.INFO,
        format="%(asctime)s %(process)d %(levelname)s %(message)s",
        force=True,
    )
    effects.write_to(Path(order["effects"]))
    target = order.get("target")
    watch = boundaries.watch = Watch(
        order["token"], order["report_fd"], target=Boundary.parse(target) if target else None, nth=order.get("nth"),
        counting=bool(order.get("counting")), pause=Boundary.parse(order["pause"]) if order.get("pause") else None,
    )  # fmt: skip
    watch.marks = set(order.get("marks", ()))
    if any(order.get(word) for word in ("target", "nth", "counting", "marks", "pause")):
        watch.install()
    if order["role"] == "client":
        said = asyncio.run(SCENARIOS[order["scenario"]].client(order["dsn"], order["owner_dsn"], order["run"]))
        watch.say(exit=0, said=said)
        return 0
    pulse.Pulse._start = _forked_heart  # type: ignore[method-assign, assignment]  # see above
    code = asyncio.run(_work(order, watch))
    watch.say(exit=code)
    return code


async def _work(order: dict[str, Any], watch: Watch) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    environ = {
        "FENCEPOST_LEASE_SECONDS": str(order["lease"]), "FENCEPOST_HEARTBEAT_SECONDS": str(order["beat"]),
        "FENCEPOST_FILES": order["files"],
    }  # fmt: skip
    os.environ.update(order.get("environ", {}))
    if order.get("host"):
        _live_elsewhere(order["host"])
    if order.get("hours"):
        _go_wrong_by(order["hours"])
    orders.GRACES_MS = tuple(order.get("graces", (2000, 2000)))  # type: ignore[misc]  # a command's, when it is stopped
    worker = Worker(
        apps()[order["app"]], read_settings(environ, dsn=order["dsn"]), release="dev", concurrency=order.get("concurrency", 8),
        threads=2, grace_seconds=order.get("grace", 5.0),
    )  # fmt: skip
    _hearts.watched = bool(order.get("hearts"))
    if order.get("gate"):
        Gate(worker, watch, loop)
    return await worker.run(stop, on_ready=lambda _: watch.say(ready=worker.incarnation.hex))


def _live_elsewhere(boot_id: str) -> None:
    """From now on this process is of another host: that is what its boot id says of it."""
    facts = process.facts
    process.facts = lambda: dataclasses.replace(facts(), boot_id=boot_id)


def _go_wrong_by(hours: float) -> None:
    """From now on this process's clocks of the day are wrong."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + hours * 3600
    time.time_ns = lambda: right_ns() + int(hours * 3600e9)


class Gate:
    """A worker that beats and looks after its peers, and claims only while its gate is open: SIGUSR1 opens, SIGUSR2 closes it."""

    def __init__(self, worker: Worker, watch: Watch, loop: asyncio.AbstractEventLoop) -> None:
        self._claims = worker.claims
        self._watch = watch
        self._open = False
        self._asking = 0
        self._has_room = worker.claims._has_room
        self._ask = worker.claims._ask
        worker.claims._has_room = lambda holding: self._open and self._has_room(holding)  # type: ignore[method-assign]  # its gate
        worker.claims._ask = self._asked  # type: ignore[method-assign, assignment]  # to know when none is under way
        loop.add_signal_handler(signal.SIGUSR1, self._turn, True)
        loop.add_signal_handler(signal.SIGUSR2, self._turn, False)

    async def _asked(self, *args: Any, **options: Any) -> Any:
        self._asking += 1
        try:
            return await self._ask(*args, **options)
        finally:
            self._asking -= 1
            self._answer()

    def _turn(self, wanted: bool) -> None:
        self._open = wanted
        if wanted:
            self._claims.let_go(empty=False)
            self._claims.look()
        self._answer()

    def _answer(self) -> None:
        if self._open or not self._asking:
            self._watch.say(gate=self._open)


class _Hearts:
    watched = False


_hearts = _Hearts()


class ForkedHeart:
    """The heartbeat process, as the loop sees a process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_end)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        await self._ended.wait()
        return self.returncode or 0

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()


async def _forked_heart(_pulse: pulse.Pulse, theirs: socket.socket) -> ForkedHeart:
    pid = os.fork()
    if pid == 0:
        _become_heart(theirs)
    return ForkedHeart(pid)


def _become_heart(theirs: socket.socket) -> None:
    """Never returns. The worker's descriptors are closed, its loop is never touched."""
    code = 70
    try:
        watch = boundaries.watch
        assert watch is not None
        kept = sorted({theirs.fileno(), watch._fd})
        die_with_parent()  # also one that stands at a boundary and hears nothing
        signal.set_wakeup_fd(-1)
        os.closerange(3, kept[0])
        for low, high in zip(kept, [*kept[1:], 4096], strict=True):
            os.closerange(low + 1, high)
        if _hearts.watched:
            watch.enter_part("heart")
        else:
            faults.hook = None
        sys.argv = ["heartbeat", str(theirs.detach())]
        heartbeat.main()
        code = 0
    finally:
        os._exit(code)

"""What a worker is made of, each alone: proof of death, the link, the threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.worker import process
from fencepost.worker.link import Link, pair
from fencepost.worker.threads import StepThreads
from tests.roads.crew import is_away, until

# Proof of death (85.3)


@contextlib.contextmanager
def sleeper(code: str = "import sys; sys.stdin.read()") -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


async def test_85_3_who_lives_or_is_stopped_is_not_gone() -> None:
    with sleeper() as child:
        seen = process.look(child.pid)
        assert seen is not None
        assert not process.is_gone(child.pid, seen.start)
        assert not process.is_gone(child.pid, None), "what cannot be compared proves nothing"
        assert not process.is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        await until(lambda: process.is_stopped(child.pid), "the stop")
        assert not process.is_gone(child.pid, seen.start)


async def test_85_3_a_zombie_an_absent_process_and_a_successor_under_its_number_are_proof() -> None:
    with sleeper() as child:
        seen = process.look(child.pid)
        assert seen is not None
        assert process.is_gone(child.pid, str(int(seen.start) - 1)), "another process has the number"
        child.kill()
        await until(lambda: process.is_gone(child.pid, seen.start), "the zombie")
        assert process.look(child.pid) is not None, "nobody has fetched it yet"
    await is_away(child.pid)


async def test_85_3_a_process_that_outlives_its_first_thread_is_a_living_one() -> None:
    """Whoever looks sees a zombie."""
    code = "import ctypes, threading, sys; threading.Thread(target=sys.stdin.read).start(); ctypes.CDLL(None).pthread_exit(None)"
    with sleeper(code) as child:

        def look() -> process.Seen:
            seen = process.look(child.pid)
            assert seen is not None
            return seen

        await until(lambda: look().state == "Z", "the end of its first thread")
        assert not process.is_gone(child.pid, look().start)


def test_85_3_numbers_that_are_no_process_prove_nothing() -> None:
    assert not process.is_gone(0, None)
    assert not process.is_gone(-1, None)
    assert not process.is_gone(2**40, "1"), "no number of a process of ours"


def test_facts_name_this_process_and_nobody_elses() -> None:
    facts = process.facts()
    assert facts.pid == os.getpid()
    assert facts.boot_id
    assert str(Path("/proc/self/ns/pid").stat().st_ino) == (facts.pid_namespace or "").split("/")[0]
    assert not process.is_gone(facts.pid, facts.process_start)


# The link (40.14)


async def test_40_14_what_the_other_end_did_not_read_is_replaced_by_the_newest_and_never_overtaken() -> None:
    ours, theirs = pair()
    heard: list[int] = []
    link = Link(ours, lambda _: None)
    for n in range(100_000):
        link.say(n.to_bytes(4, "big") * 500)
    reader = Link(theirs, lambda message: heard.append(int.from_bytes(message[:4], "big")))
    await until(lambda: heard and heard[-1] == 99_999, "the newest")
    assert heard == sorted(set(heard))
    assert len(heard) < 1000
    for end in (link, reader):
        end.close()


async def test_40_14_the_longest_list_travels_whole() -> None:
    ours, theirs = pair()
    heard: list[bytes] = []
    link, reader = Link(ours, lambda _: None), Link(theirs, heard.append)
    message = os.urandom(150_000)  # ten thousand attempts with large numbers
    link.say(message)
    await until(lambda: heard, "it")
    assert heard == [message]
    link.close()
    reader.close()
    link.say(b"to nobody")  # harmless


# Threads


async def test_steps_run_side_by_side_and_no_more_than_there_are_threads() -> None:
    pool = StepThreads(2, used_up=lambda _: None)
    loop = asyncio.get_running_loop()
    both, go = threading.Barrier(3), threading.Event()

    def meet() -> int:
        both.wait(5)
        go.wait(5)
        return threading.get_ident()

    futures = [loop.run_in_executor(pool, meet) for _ in range(2)]
    third = loop.run_in_executor(pool, threading.get_ident)
    await asyncio.to_thread(both.wait, 5)
    assert not third.done()
    go.set()
    assert len(set(await asyncio.gather(*futures))) == 2
    assert await third in [future.result() for future in futures]
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(pool, lambda: 1 // 0)
    pool.shutdown()


async def test_40_12_a_lost_step_uses_its_thread_up_until_it_ends_and_a_waiting_one_never_begins() -> None:
    said: list[str] = []
    pool = StepThreads(1, used_up=said.append)
    loop = asyncio.get_running_loop()
    go, ran = threading.Event(), []

    async def step(name: str, function: Any) -> None:
        future = loop.run_in_executor(pool, function)
        try:
            await asyncio.wait_for(asyncio.shield(future), 0.05)
        except TimeoutError:
            pool.lose(name)

    await asyncio.create_task(step("hung", lambda: go.wait(10)))
    assert (said, pool.lost) == (["hung"], 1)
    await asyncio.create_task(step("waiting", lambda: ran.append(1)))
    assert pool.lost == 1
    go.set()
    await until(lambda: pool.lost == 0, "the thread's return")
    await loop.run_in_executor(pool, int)
    assert ran == [], "nobody waited for it any more"
    pool.shutdown()

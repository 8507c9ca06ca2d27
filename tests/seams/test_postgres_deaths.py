"""The embedded PostgreSQL, when its processes are really killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.postgres import NoPostgres, find_binaries, open_home
from fencepost.postgres.identity import Identity, environment
from tests.seams import embedded
from tests.seams.embedded import (
    IDLE,
    ROOT,
    Client,
    ask,
    ask_patiently,
    attached,
    end,
    ended,
    keeper_of,
    let_pass,
    needs_linux,
    open_test,
    place,
    servers,
    wait_new_keeper,
    wait_reaped,
    wait_stopped,
)

folder, home, client = embedded.folder, embedded.home, embedded.client  # fixtures


def test_when_the_last_client_is_killed_the_server_stops(client: Callable[..., Client], home: Path) -> None:
    one, other = client(), client()
    one.dsn()
    dsn = other.dsn()
    one.kill()
    assert ask(dsn, "select 1") == 1
    other.kill()
    wait_stopped(home)


@needs_linux
def test_when_the_server_is_killed_its_keeper_starts_it_again_with_all_rows(home: Path) -> None:
    with open_test(home) as leased:
        ask(leased.dsn, "create table kept as select generate_series(1, 1000) as n")
        before = place(home)
        backend = ask(leased.dsn, "select pid from pg_stat_activity where backend_type = 'checkpointer'")
        end(before["server"])
        assert ask_patiently(leased.dsn, "select count(*) from kept") == 1000
        with open_home(home, create=False):
            after = place(home)
        assert after["keeper"] == before["keeper"]
        assert servers(home) == [after["server"]] != [before["server"]]
        for pid in (before["server"], backend):  # reaped, not zombies: the keeper is the reaper of its orphans
            wait_reaped(pid)


@needs_linux
def test_an_orphan_that_does_not_notice_its_servers_death_is_ended_by_the_keeper(home: Path) -> None:
    """It may be in the middle of a long write, or stopped; nobody waits for it for ever, and the keeper stays."""
    with open_test(home) as leased:
        ask(leased.dsn, "create table kept as select generate_series(1, 1000) as n")
        before = place(home)
        orphan = ask(leased.dsn, "select pid from pg_stat_activity where backend_type = 'checkpointer'")
        os.kill(orphan, signal.SIGSTOP)
        end(before["server"])
        assert ask_patiently(leased.dsn, "select count(*) from kept") == 1000
        assert place(home)["keeper"] == before["keeper"]
        wait_reaped(orphan)


@needs_linux
def test_when_the_keeper_is_killed_a_living_client_starts_another_and_there_is_one_server(home: Path) -> None:
    with open_test(home) as leased:
        ask(leased.dsn, "create table kept as select generate_series(1, 1000) as n")
        before = place(home)
        end(before["keeper"])
        wait_new_keeper(home, before["keeper"])
        assert ask_patiently(leased.dsn, "select count(*) from kept") == 1000
        assert place(home)["keeper"] != before["keeper"]
        assert servers(home) == [place(home)["server"]]
    wait_stopped(home)


@needs_linux
def test_when_everything_but_the_client_is_killed_all_comes_back(home: Path) -> None:
    with open_test(home) as leased:
        ask(leased.dsn, "create table kept as select generate_series(1, 1000) as n")
        before = place(home)
        os.kill(before["keeper"], signal.SIGSTOP)  # it must not bring the server back in between
        for pid in attached(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end(before["keeper"])
        wait_new_keeper(home, before["keeper"])
        assert ask_patiently(leased.dsn, "select count(*) from kept") == 1000


@needs_linux
def test_when_keeper_and_client_are_killed_the_server_stops_by_itself(
    client: Callable[..., Client], home: Path
) -> None:
    one = client()
    ask(one.dsn(), "create table kept as select generate_series(1, 1000) as n")
    keeper = place(home)["keeper"]
    one.kill()
    end(keeper)
    wait_stopped(home)
    with open_home(home, create=False, idle_seconds=IDLE) as leased:
        assert ask(leased.dsn, "select count(*) from kept") == 1000


@needs_linux
def test_a_stopped_orphan_of_a_dead_server_is_refused_in_words_until_it_is_gone(
    client: Callable[..., Client], home: Path
) -> None:
    one = client()
    dsn = one.dsn()
    ask(dsn, "create table kept as select generate_series(1, 1000) as n")
    orphan = ask(dsn, "select pid from pg_stat_activity where backend_type = 'checkpointer'")
    before = place(home)
    os.kill(orphan, signal.SIGSTOP)
    os.kill(before["keeper"], signal.SIGSTOP)  # neither it nor the client shall act in between
    one.kill()
    end(before["keeper"])
    end(before["server"])
    try:
        with pytest.raises(NoPostgres, match=f"process {orphan}.*kill -9.*data are safe") as refused:
            open_home(home, create=False)
        assert "\n" not in str(refused.value)
        assert servers(home) == []
    finally:
        end(orphan)
    with open_home(home, create=False, idle_seconds=IDLE) as leased:
        assert ask(leased.dsn, "select count(*) from kept") == 1000


@needs_linux
def test_a_death_during_the_making_of_the_data_does_not_block_the_next(
    client: Callable[..., Client], home: Path
) -> None:
    one = client()
    while not (home / "postgres.new" / "base").exists():
        assert one.process.poll() is None
        let_pass(0.002)
    keeper = keeper_of(home)
    one.kill()
    end(keeper)
    assert not (home / "postgres").exists()
    with open_test(home) as leased:
        assert ask(leased.dsn, "select 1") == 1
        assert not (home / "postgres.new").exists()


@needs_linux
def test_lock_files_that_name_a_living_stranger_are_not_believed(home: Path) -> None:
    open_test(home).close()
    wait_stopped(home)
    (home / "postgres" / "postmaster.pid").write_text(
        f"{os.getpid()}\n{home}/postgres\n1\n5432\n{home}/socket\n\n1 1\nready\n"
    )
    (home / "socket" / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n{home}/postgres\n1\n5432\n{home}/socket\n")
    with open_test(home) as leased:
        assert ask(leased.dsn, "select 1") == 1


@needs_linux
def test_a_server_started_by_hand_on_the_data_is_respected(home: Path) -> None:
    open_test(home).close()
    wait_stopped(home)
    other = subprocess.Popen(
        [find_binaries() / "postgres", "-D", home / "postgres", "-h", "", "-k", home / "socket"],
        env=environment(), stderr=subprocess.PIPE, text=True,
        preexec_fn=Identity(namespace=ROOT).enter(signal.SIGKILL),  # noqa: PLW1509 no threads here
    )  # fmt: skip
    try:
        assert other.stderr is not None
        for line in other.stderr:
            if "ready to accept" in line:
                break
        with pytest.raises(NoPostgres, match=f"not ours .process {other.pid}."):
            open_test(home)
        assert servers(home) == [other.pid]
    finally:
        other.send_signal(signal.SIGINT)
        other.communicate(timeout=30)
    with open_test(home) as leased:
        assert ask(leased.dsn, "select 1") == 1


@needs_linux
def test_when_the_home_is_removed_everything_leaves(home: Path) -> None:
    leased = open_test(home)
    keeper, server = place(home)["keeper"], place(home)["server"]
    ends = [os.pidfd_open(keeper), os.pidfd_open(server)]
    while home.exists():  # who is still at work may add a file in between
        shutil.rmtree(home, ignore_errors=True)
    leased.close()
    for fd in ends:
        assert ended(fd, 40), "a process stayed"
        os.close(fd)
    assert not home.exists()

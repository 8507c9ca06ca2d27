"""The embedded PostgreSQL: shared, stopped when left, untouched by its surroundings."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from fencepost.postgres import lease_free_fds, open_home
from tests.seams import embedded
from tests.seams.embedded import (
    IDLE,
    Client,
    ask,
    let_pass,
    needs_linux,
    open_test,
    place,
    servers,
    wait_free,
    wait_stopped,
)

folder, home, client = embedded.folder, embedded.home, embedded.client  # fixtures


def test_a_home_starts_is_shared_within_a_process_and_stops(home: Path) -> None:
    with open_test(home) as first:
        second = open_home(home, create=False)
        assert first.dsn == second.dsn
        assert ask(first.dsn, "show fsync") == "off"
        second.close()
        second.close()
        assert ask(first.dsn, "select 1") == 1
    wait_stopped(home)
    with pytest.raises((OSError, asyncpg.PostgresError)):
        ask(first.dsn, "select 1")


def test_unless_told_otherwise_a_server_is_as_in_earnest_and_has_no_door_but_its_socket(home: Path) -> None:
    with open_home(
        home, create=True, idle_seconds=IDLE, settings={"listen_addresses": "*", "work_mem": "5MB"}
    ) as leased:
        for name, value in {
            "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "200",
            "shared_buffers": "32MB", "listen_addresses": "", "work_mem": "5MB", "server_encoding": "UTF8",
            "lc_messages": "C", "timezone": "UTC", "unix_socket_permissions": "0700",
        }.items():  # fmt: skip
            assert ask(leased.dsn, f"show {name}") == value, name
        assert ask(leased.dsn, "select lower('ÄÖ')") == "äö"
        for name in ("postgres", "socket"):
            assert stat.S_IMODE((home / name).stat().st_mode) == 0o700
        for name in ("lease", "keeper.log", "postgres.log", "server.json"):
            assert stat.S_IMODE((home / name).stat().st_mode) == 0o600


def test_of_eight_that_race_on_an_empty_directory_one_starts_and_all_share(
    client: Callable[..., Client], home: Path
) -> None:
    racers = [client() for _ in range(8)]
    dsns = {racer.dsn() for racer in racers}
    assert len(dsns) == 1
    (dsn,) = dsns
    assert len(servers(home)) == 1
    assert (home / "postgres.log").read_text().count("ready to accept connections") == 1
    for racer in racers:
        racer.leave()
    wait_stopped(home)
    assert not (home / "postgres.new").exists()
    with open_home(home, create=False, idle_seconds=IDLE) as leased:
        assert leased.dsn == dsn


def test_the_server_outlives_its_last_lease_by_the_idle_time_and_a_short_visit_renews_it(home: Path) -> None:
    first = open_test(home, idle_seconds=0.8)
    keeper = place(home)["keeper"]
    first.close()
    let_pass(0.5)  # within the grace
    open_home(home, create=False).close()
    left = time.monotonic()
    wait_free(home, "keeper.lock")
    assert 0.75 <= time.monotonic() - left < 10
    assert place(home)["keeper"] == keeper


def test_who_comes_while_the_server_stops_gets_a_new_one(home: Path) -> None:
    for _ in range(5):
        open_test(home, idle_seconds=0.0).close()
    with open_test(home, idle_seconds=0.0) as leased:
        assert ask(leased.dsn, "select 1") == 1


@needs_linux
def test_neither_exec_nor_fork_passes_the_lease_on(home: Path) -> None:
    leased = open_test(home)
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    read, write = os.pipe()
    forked = os.fork()
    if forked == 0:  # a copy of everything, held open until the parent says so
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    try:
        leased.close()
        wait_stopped(home)
    finally:
        child.kill()
        child.wait()
        os.close(write)
        os.close(read)
        os.waitpid(forked, 0)


@needs_linux
def test_a_forked_child_leaves_its_parents_lease_alone_and_may_take_its_own(home: Path) -> None:
    leased = open_test(home)
    forked = os.fork()
    if forked == 0:
        code = 1
        with contextlib.suppress(BaseException):
            leased.close()
            lease_free_fds()
            own = open_home(home, create=False)
            own.close()
            code = 0
        os._exit(code)
    assert os.waitpid(forked, 0)[1] == 0
    let_pass(IDLE * 3)  # an idle time in which a lost lease would have stopped it
    assert ask(leased.dsn, "select 1") == 1
    leased.close()


@needs_linux
def test_the_keeper_has_a_session_of_its_own_no_stray_descriptor_and_is_the_parent_of_the_server(home: Path) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    with open_test(home):
        keeper, server = place(home)["keeper"], place(home)["server"]
        assert os.getsid(keeper) != os.getsid(0)
        assert f"PPid:\t{keeper}\n" in Path(f"/proc/{server}/status").read_text()
        assert f"PPid:\t{os.getpid()}\n" not in Path(f"/proc/{keeper}/status").read_text()
        targets = [str(entry.readlink()) for entry in Path(f"/proc/{keeper}/fd").iterdir()]
        assert str(Path(f"/proc/self/fd/{write}").readlink()) not in targets
        assert all(t.startswith((f"{home}/", "/dev/null", "pipe:")) for t in targets), targets
        assert str(home / "keeper.log") in targets
    os.close(read)
    os.close(write)


def test_the_environment_of_whoever_starts_it_bends_nothing(client: Callable[..., Client], home: Path) -> None:
    bent = {
        "PGHOST": "192.0.2.1", "PGPORT": "1", "PGUSER": "nobody", "PGDATABASE": "none", "PGDATA": "/nowhere",
        "PGOPTIONS": "-c nonsense=1", "PGSSLMODE": "require", "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
    }  # fmt: skip
    one = client(then={"env": dict(os.environ) | bent})
    assert ask(one.dsn(), "select current_setting('lc_messages') || current_setting('timezone')") == "CUTC"
    code = "import asyncio, asyncpg, sys; asyncio.run(asyncpg.connect(sys.argv[1], server_settings={}))"
    kept = {name: value for name, value in bent.items() if name != "PGOPTIONS"}
    with open_home(home, create=False) as leased:
        subprocess.run([sys.executable, "-c", code, leased.dsn], env=dict(os.environ) | kept, check=True)


@pytest.mark.parametrize("name", ["x" * 120, "with space, comma & ünïcode"])
def test_a_path_that_no_socket_can_have_gets_a_socket_elsewhere(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder / name
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
    (folder / "run").mkdir(mode=0o700)
    with open_test(home) as leased:
        assert ask(leased.dsn, "select 1") == 1
        socket_dir = Path(place(home)["socket"])
        assert socket_dir.parent == folder / "run"
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
    wait_stopped(home)
    assert not socket_dir.exists()


def test_a_home_with_a_space_in_its_path_works(folder: Path) -> None:
    with open_test(folder / "my home") as leased:
        assert ask(leased.dsn, "select 1") == 1
        assert "my%20home/socket" in leased.dsn


def test_a_copied_home_does_not_reach_for_the_sockets_of_the_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    first, second = folder / ("x" * 110), folder / ("y" * 110)
    open_test(first).close()
    wait_stopped(first)
    shutil.copytree(first, second)
    with open_test(first) as one, open_test(second) as two:
        assert one.dsn != two.dsn
        assert ask(one.dsn, "show data_directory") == str(first / "postgres")
        assert ask(two.dsn, "show data_directory") == str(second / "postgres")


@pytest.mark.skipif(not Path("/usr/lib/postgresql/15/bin/initdb").exists(), reason="no PostgreSQL 15 here")
def test_an_older_postgres_serves_as_well(home: Path) -> None:
    with open_test(home, bin_dir=Path("/usr/lib/postgresql/15/bin")) as leased:
        assert ask(leased.dsn, "show server_version").startswith("15.")
        assert ask(leased.dsn, "show server_encoding") == "UTF8"

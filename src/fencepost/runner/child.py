"""Between fork and exec: the child that becomes the command, and words for why it could not."""

from __future__ import annotations

import errno
import os
import signal

from fencepost.runner import tree
from fencepost.runner.kept import reach

TYPE_CHECKING = False  # typing itself is not imported: a supervisor is to be there at once
if TYPE_CHECKING:
    from typing import Any, NoReturn

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGPIPE", "SIGXFSZ")


def become(order: dict[str, Any], parent: int, hold: int, release: int, streams: list[int], errors: int) -> NoReturn:
    """Wait until we are let go, then be the command. What fails is said through `errors`: its stage and its number."""
    stage = "launch"
    try:
        reach("child")
        tree.die_with_parent()
        os.setpgid(0, 0)
        os.close(release)
        signal.set_wakeup_fd(-1)
        for name in SIGNALS:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what was sent since the fork counts from here on
        if os.getppid() != parent or not os.read(hold, 1):
            os._exit(127)
        stage = "stdin"
        os.dup2(os.open(order["stdin"] or os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        stage = "cwd"
        os.chdir(order["cwd"])
        os.umask(order["umask"])
        stage = "command"
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - no shell: that is the point
    except OSError as error:
        os.write(errors, f"{stage} {error.errno}".encode())
    except BaseException as error:
        os.write(errors, f"{stage} 0 {error}".encode()[:400])
    os._exit(127)


def status_of(pid: int) -> int | None:
    """How a child ended: its exit code, or minus its signal; None: it has not. It stays a zombie, where a system has the means."""
    if not hasattr(os, "waitid"):
        ended, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def words(failed: str, order: dict[str, Any]) -> str:
    """Why the command could not be started, for people."""
    stage, number, *rest = failed.split(" ", 2)
    code = int(number)
    why = os.strerror(code) if code else " ".join(rest)
    program, cwd = order["argv"][0], order["cwd"]
    if stage == "cwd":
        known = {errno.ENOENT: "does not exist", errno.ENOTDIR: "is not a folder", errno.EACCES: "may not be entered"}
        return f"the working folder {cwd} {known.get(code, f'cannot be used: {why}')}"
    if stage == "command":
        where = f"looked for from {cwd}" if "/" in program else "looked for on PATH"
        known = {
            errno.ENOENT: f"does not exist ({where})",
            errno.ENOTDIR: f"does not exist ({where}): a part of its path is not a folder",
            errno.EACCES: f"is not executable ({where})",
            errno.ENOEXEC: "is not a program: a script begins with #! and the program that reads it",
            errno.E2BIG: "was given more arguments and environment than this machine can hand over",
        }
        return f"the command {program!r} {known.get(code, f'cannot be started: {why}')}"
    return f"the command {program!r} cannot be started ({stage}): {why}"

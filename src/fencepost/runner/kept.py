"""What a supervisor leaves in its folder: streams within bounds, digests of outputs, and files that are whole and durable."""

from __future__ import annotations

import json
import os
import signal
import stat

TYPE_CHECKING = False  # typing itself is not imported: a supervisor is to be there at once
if TYPE_CHECKING:
    from typing import Any, Final

HASHED: Final = 1024 * 1024
STOP_AT: Final = "FENCEPOST_SUPERVISOR_STOP_AT"  # tests: it stops itself at this point, and is killed or woken there


class Sink:
    """A stream's file: its beginning up to a bound, then its end; what is between them is counted, not kept."""

    def __init__(self, name: str, bound: int, ending: int) -> None:
        self.fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.bound, self.ending = bound, ending
        self.size = self.kept = 0
        self.last = b""

    def take(self, chunk: bytes) -> None:
        """Keep a piece, or its end."""
        self.size += len(chunk)
        head = chunk[: self.bound - self.kept] if not self.last else b""
        if head and not self._put(head):
            self.bound = self.kept
        self.last = (self.last + chunk[len(head) :])[-self.ending :]

    def close(self) -> dict[str, int]:
        """What was written, and how much of it is not in the file."""
        kept = self.kept
        dropped = self.size - kept - len(self.last)
        if dropped:
            self._put(f"\n[fencepost: {dropped} bytes are not kept here]\n".encode())
        if not self._put(self.last):
            dropped = self.size - kept
        os.close(self.fd)
        return {"size": self.size, "dropped": dropped}

    def _put(self, content: bytes) -> bool:
        """Write; a full disk loses a log, never a command's outcome."""
        try:
            while content:
                written = os.write(self.fd, content)
                self.kept += written
                content = content[written:]
        except OSError:
            return False
        return True


def digest_of(path: str, home: str) -> dict[str, Any]:
    """The digest of an output's file, or what is wrong with it. Memory is bounded, whatever its size."""
    import hashlib

    path, home = os.path.realpath(path), os.path.realpath(home)
    if os.path.commonpath([path, home]) != home:
        return {"problem": f"it leads out of its folder, to {path}"}
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return {"problem": "missing"}
    except OSError as error:
        return {"problem": f"it cannot be read: {os.strerror(error.errno or 0)}"}
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return {"problem": "it is not a regular file"}
        digest, size = hashlib.sha256(), 0
        while chunk := os.read(fd, HASHED):
            digest.update(chunk)
            size += len(chunk)
        os.fsync(fd)  # the result that names this digest is durable, so what it speaks of is
    except OSError as error:
        return {"problem": f"it cannot be read: {os.strerror(error.errno or 0)}"}
    finally:
        os.close(fd)
    return {"size": size, "digest": f"sha256:{digest.hexdigest()}", "path": path}


def write_durably(name: str, content: dict[str, Any]) -> None:
    """The file appears in the folder whole and durable, or not at all."""
    temporary = f".{name}.part"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        data = json.dumps(content).encode()
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    reach(f"before {name}")
    os.rename(temporary, name)  # noqa: PTH104 - pathlib is not imported: a start costs more than it saves
    folder = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    reach(f"after {name}")


def reach(point: str) -> None:
    """A named place, where a test may have us stop."""
    if os.environ.get(STOP_AT) == point:
        os.kill(os.getpid(), signal.SIGSTOP)

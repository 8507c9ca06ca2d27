"""A process that has imported everything and forks the others: `python -m tests.crash.zygote FD`.

A fork is a process of its own with its own id and its own event loop, and begins in ten milliseconds. Each message of the socket is
what one of them is to be. When the harness ends, this ends, and with it whoever it forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

SUBREAPER = 36
DEATH_SIGNAL = 1


def die_with_parent() -> None:
    """SIGKILL when the parent ends, however it ends."""
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def serve(end: socket.socket) -> None:
    """Fork what is asked for, until the other end is closed."""
    from tests.crash import process

    gc.freeze()
    while order := end.recv(65536):
        pid = os.fork()
        if pid == 0:
            _become(end, process.main, json.loads(order))
        end.send(str(pid).encode())


def _become(end: socket.socket, main: Any, order: dict[str, Any]) -> None:
    code = 70
    try:
        die_with_parent()
        end.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = main(order)
    except BaseException:
        with contextlib.suppress(OSError):
            traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    die_with_parent()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody is waited for: an ended one is gone at once
    serve(socket.socket(fileno=int(sys.argv[1])))

"""Ports of loopback for servers that a test starts itself."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

SOON = 60.0  # seconds


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def await_listener(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Blocks until somebody listens. AssertionError with what the process said, if it ended instead."""
    late = time.monotonic() + SOON
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), SOON).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < late
            time.sleep(0.02)  # waits: a server that is starting tells nobody when it listens

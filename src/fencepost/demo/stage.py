"""Where the demo plays: the example's files, a folder of its own, the database, the run's names."""

from __future__ import annotations

import contextlib
import importlib
import secrets
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fencepost
from fencepost.demo.trouble import CannotRun
from fencepost.settings import Settings

TARGET: Final = "airports.app:app"


@dataclass(frozen=True, slots=True)
class Example:
    """The modules of the example, and the folder that has to be on Python's path to import them."""

    folder: Path
    app: Any
    press: Any
    work: Any


@dataclass(frozen=True, slots=True)
class Stage:
    """One demo's place. `home`: of the embedded database, None with somebody else's.

    The release is of this demo alone: its workers meet nobody else's runs, and nobody else's workers meet its run.
    """

    example: Example
    settings: Settings
    dsn: str
    home: Path | None
    scratch: Path
    run_id: str
    release: str

    @property
    def posts(self) -> Path:
        """The press's file: a line for each post."""
        return self.scratch / "posts.jsonl"

    @property
    def begun(self) -> Path:
        """The row log: a line for each begin of a row."""
        return self.scratch / "begun.log"

    @property
    def result(self) -> Path:
        """What the run writes."""
        return self.scratch / "located.jsonl"


def find_example() -> Example:
    """The example that came with the package, or lies in the checkout. Raises CannotRun."""
    package = Path(fencepost.__file__).resolve().parent
    places = [package / "_examples", package.parent.parent / "examples"]
    folder = next((place for place in places if (place / "airports" / "app.py").is_file()), None)
    if folder is None:
        raise CannotRun(f"the example's files are neither in {places[0]} nor in {places[1]}: install fencepost anew")
    sys.path.insert(0, str(folder))
    modules = [importlib.import_module(f"airports.{name}") for name in ("app", "press", "work")]
    return Example(folder, *modules)


@contextlib.contextmanager
def open_stage(example: Example, settings: Settings) -> Generator[Stage]:
    """The database, leased while the block runs, and a fresh folder, which stays: it holds what the demo shows.

    Raises CannotRun, NoPostgres.
    """
    name = secrets.token_hex(4)
    with contextlib.ExitStack() as stack:
        home, dsn = None, settings.database_url
        if dsn is None:
            from fencepost.postgres import open_home

            home = settings.home.absolute()
            dsn = stack.enter_context(open_home(home, create=True)).dsn
        yield Stage(example, settings, dsn, home, _fresh_folder(home, name), f"airports-{name}", f"demo-{name}")


def _fresh_folder(home: Path | None, name: str) -> Path:
    folder = home / "demo" / name if home is not None else Path(tempfile.gettempdir()) / f"fencepost-demo-{name}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise CannotRun(f"nothing can be written to {folder}: {error.strerror or error}") from error
    return folder

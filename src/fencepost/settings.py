"""The settings: read once, when somebody asks, into one frozen object (law 00.12). Import reads nothing.

An argument wins over the environment, that over the default. Texts are trimmed, and a blank one is unset.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import urlsplit

from fencepost.limits import HEARTBEAT_SECONDS, LEASE_HEARTBEATS_MIN, LEASE_SECONDS
from fencepost.values import check_name

Origin = Literal["argument", "environment", "default"]

SCHEMA: Final = "fencepost"
RELEASE: Final = "dev"
_IDENTIFIER_BYTES_MAX: Final = 63

VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "database_url": "FENCEPOST_DATABASE_URL",
        "listen_url": "FENCEPOST_LISTEN_URL",
        "schema": "FENCEPOST_SCHEMA",
        "release": "FENCEPOST_RELEASE",
        "lane_suffix": "FENCEPOST_LANE_SUFFIX",
        "home": "FENCEPOST_HOME",
        "files": "FENCEPOST_FILES",
        "store": "FENCEPOST_STORE",
        "lease_seconds": "FENCEPOST_LEASE_SECONDS",
        "heartbeat_seconds": "FENCEPOST_HEARTBEAT_SECONDS",
    }
)


# What _refuse shows: how an argument is called when it is not called as its field, and what could be set.
_ARGUMENTS: Final = {"database_url": "dsn"}
_EXAMPLES: Final = {
    "database_url": "postgresql://user@host:5432/database",
    "listen_url": "postgresql://user@host:5432/database",
    "schema": SCHEMA,
    "release": "2026-11-29",
    "lane_suffix": "anna",
    "home": "/var/lib/fencepost",
    "files": "/var/lib/fencepost/files",
    "store": "s3://bucket/prefix",
    "lease_seconds": f"{LEASE_SECONDS:g}",
    "heartbeat_seconds": f"{HEARTBEAT_SECONDS:g}",
}

_OBJECT_STORES: Final = ("s3", "gs", "az")


class BadSettings(Exception):
    """Settings are missing or unusable. `problems` names every one: what is wrong with it and what to set."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a process works with. `origins` says of each where it came from: argument, environment or default.

    Units     seconds on this machine's monotonic clock.
    """

    # Neither is shown by repr(): both may hold a password.
    database_url: str | None = field(default=None, repr=False)
    listen_url: str | None = field(default=None, repr=False)  # for LISTEN, when the first goes through a pooler
    schema: str = SCHEMA
    release: str | None = None
    lane_suffix: str | None = None
    home: Path = Path(".fencepost")  # of the embedded database
    files: Path = Path(
        ".fencepost/files"
    )  # of plans: the folders of attempts, and the content store unless it is elsewhere
    store: str | None = None  # the content store's URL; None: a folder of `files`
    lease_seconds: float = LEASE_SECONDS
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType(dict.fromkeys(VARIABLES, "default")))

    def need_database_url(self) -> str:
        """The database's URL. Raises BadSettings when there is none."""
        require(self, "database_url")
        assert self.database_url is not None, "required above"
        return self.database_url

    def masked(self) -> dict[str, str]:
        """Every setting as text that may be printed: secrets are masked, what is unset is empty."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "origins"}
        return {name: "" if value is None else mask(str(value)) for name, value in values.items()}


def read_settings(
    environ: Mapping[str, str] | None = None,
    *,
    dsn: str | None = None,
    schema: str | None = None,
    release: str | None = None,
    lane_suffix: str | None = None,
    home: str | os.PathLike[str] | None = None,
) -> Settings:
    """The settings of this process: `environ` is os.environ unless given.

    Raises    BadSettings, naming everything that is wrong at once.
    """
    reading = _Reading(
        os.environ if environ is None else environ,
        {
            "database_url": dsn,
            "schema": schema,
            "release": release,
            "lane_suffix": lane_suffix,
            "home": None if home is None else os.fspath(home),
        },
    )
    lease = reading.seconds("lease_seconds", LEASE_SECONDS)
    heartbeat = reading.seconds("heartbeat_seconds", HEARTBEAT_SECONDS)
    if lease < LEASE_HEARTBEATS_MIN * heartbeat:
        reading.problems.append(
            f"{VARIABLES['lease_seconds']} ({lease:g}) is less than {LEASE_HEARTBEATS_MIN} times "
            f"{VARIABLES['heartbeat_seconds']} ({heartbeat:g}): set a longer lease or a shorter heartbeat"
        )
    settings = Settings(
        database_url=reading.url("database_url"),
        listen_url=reading.url("listen_url"),
        schema=reading.schema(),
        release=reading.name("release"),
        lane_suffix=reading.name("lane_suffix"),
        home=reading.folder("home", ".fencepost"),
        files=reading.files(),
        store=reading.store(),
        lease_seconds=lease,
        heartbeat_seconds=heartbeat,
        origins=MappingProxyType(reading.origins),
    )
    if reading.problems:
        raise BadSettings(reading.problems)
    return settings


class _Reading:
    """One reading: each method answers a usable value, and notes what was not usable."""

    def __init__(self, environ: Mapping[str, str], arguments: Mapping[str, str | None]) -> None:
        self.problems: list[str] = []
        self.origins: dict[str, Origin] = {}
        self._given: dict[str, str] = {}
        self._state = environ.get("XDG_STATE_HOME", "").strip() or "~/.local/state"
        for word, variable in VARIABLES.items():
            argument, exported = (arguments.get(word) or "").strip(), environ.get(variable, "").strip()
            self.origins[word] = "argument" if argument else "environment" if exported else "default"
            if argument or exported:
                self._given[word] = argument or exported

    def url(self, word: str) -> str | None:
        text = self._given.get(word)
        if text is None:
            return None
        try:
            parts = urlsplit(text)
            # Reading the port judges it. Several hosts have several, which the driver judges.
            good = parts.scheme in {"postgresql", "postgres"} and ("," in parts.netloc or parts.port != 0)
        except ValueError:
            good = False
        if not good or "://" not in text or not text.isprintable():
            self._refuse(word, "is not the URL of a PostgreSQL database")
        return text

    def schema(self) -> str:
        text = self._given.get("schema", SCHEMA)
        if len(text.encode("utf-8", "surrogateescape")) > _IDENTIFIER_BYTES_MAX or not _is_name(text):
            self._refuse("schema", f"is no name of at most {_IDENTIFIER_BYTES_MAX} bytes")
        elif text.startswith("pg_"):
            self._refuse("schema", "begins with pg_, which PostgreSQL keeps for itself")
        return text

    def name(self, word: str) -> str | None:
        text = self._given.get(word)
        if text is not None and not _is_name(text):
            self._refuse(word, "has over 200 characters or control characters")
        return text

    def folder(self, word: str, default: str) -> Path:
        text = self._given.get(word, default)
        try:
            return Path(text).expanduser()
        except RuntimeError:
            self._refuse(word, "begins with ~ and names nobody who has a home here")
            return Path(text)

    def files(self) -> Path:
        """With a database of somebody else's all workers of a user on a host find one place, wherever they are started."""
        embedded = f"{self._given.get('home', '.fencepost')}/files"
        default = f"{self._state}/fencepost/files" if "database_url" in self._given else embedded
        return self.folder("files", default)

    def store(self) -> str | None:
        """A URL without a password: those are in the environment, under the names their providers gave them."""
        text = self._given.get("store")
        if text is None:
            return None
        try:
            parts = urlsplit(text)
            bucket = parts.scheme in _OBJECT_STORES and parts.netloc and "@" not in parts.netloc
            folder = parts.scheme == "file" and not parts.netloc and parts.path.strip("/")
            good = bool(bucket or folder)
        except ValueError:
            good = False
        if not good or "://" not in text or "?" in text or "#" in text or not text.isprintable():
            schemes = ", ".join(f"{scheme}://" for scheme in _OBJECT_STORES)
            self._refuse("store", f"is not the URL of a store ({schemes} with a bucket, or file:///)")
        return text

    def seconds(self, word: str, default: float) -> float:
        text = self._given.get(word)
        if text is None:
            return default
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not (math.isfinite(found) and found > 0):
            self._refuse(word, f"is not a number of seconds above 0 ({text[:40]!r})")
            return default
        return found

    def _refuse(self, word: str, problem: str) -> None:
        given = self.origins[word] == "argument"
        where = f"the argument {_ARGUMENTS.get(word, word)}" if given else VARIABLES[word]
        self.problems.append(f"{where} {problem}: set it, for example, to {_EXAMPLES[word]}")


def _is_name(text: str) -> bool:
    try:
        check_name(text, "")
    except ValueError:
        return False
    return True


def require(settings: Settings, *words: str) -> None:
    """That these settings (by their fields' names) are set. Raises BadSettings, naming every missing one at once."""
    missing = [word for word in words if getattr(settings, word) is None]
    if missing:
        raise BadSettings(
            [f"{VARIABLES[word]} is not set: set it, for example, to {_EXAMPLES[word]}" for word in missing]
        )


# Which release (laws 10.4, 10.5)


def release_of(settings: Settings) -> str:
    """The id of the release this process works for: the same for who submits and who works, given the same settings.

    Order     the argument, FENCEPOST_LANE_SUFFIX (`dev-<suffix>`), FENCEPOST_RELEASE, `dev`.
    """
    if settings.release is not None and settings.origins["release"] == "argument":
        return settings.release
    if settings.lane_suffix is not None:
        return f"{RELEASE}-{settings.lane_suffix}"
    return settings.release if settings.release is not None else RELEASE


def remote_release(schema: str) -> str:
    """The release of a schema that is not this process's own: who reaches it from outside derives the same from its name."""
    return f"{RELEASE}-{hashlib.sha256(schema.encode()).hexdigest()[:12]}"


def check_worker(settings: Settings) -> None:
    """That a worker may start (law 10.5). Raises BadSettings.

    Whoever set up a schema of their own would otherwise share the lane `runs` with everybody's laptop.
    """
    if settings.schema != SCHEMA and settings.release is None and settings.lane_suffix is None:
        raise BadSettings(
            [
                (
                    f"{VARIABLES['schema']} is {settings.schema!r}, not {SCHEMA!r}, and a worker there must say for whom it works: "
                    f"set {VARIABLES['lane_suffix']} (for one person's or branch's runs) or {VARIABLES['release']} (for a release)"
                )
            ]
        )


# Secrets

_MASK: Final = "***"
# From the first colon after the user to the last @: a password may hold any of :/?#@ unescaped, and over-masking is harmless.
_IN_AUTHORITY: Final = re.compile(r"(://[^:/?#@]*):.*@", re.DOTALL)
_IN_KEYWORDS: Final = re.compile(
    r"((?:password|passwd|secret|token)\w*\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]*)", re.IGNORECASE | re.DOTALL
)


def mask(text: str) -> str:
    """The text with passwords masked, in the authority and the query of URLs and in the keywords of DSNs."""
    return _IN_KEYWORDS.sub(rf"\1{_MASK}", _IN_AUTHORITY.sub(rf"\1:{_MASK}@", text))

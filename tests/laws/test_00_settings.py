"""Laws 00.12, 10.4 and 10.5: the settings. No database."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.settings import (
    VARIABLES,
    BadSettings,
    Settings,
    check_worker,
    mask,
    read_settings,
    release_of,
    remote_release,
    require,
)

URL = "postgresql://anna:s3cret@db.example:5432/app"


def refused(environ: dict[str, str], **arguments: Any) -> tuple[str, ...]:
    with pytest.raises(BadSettings) as caught:
        read_settings(environ, **arguments)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def test_nothing_set_gives_the_defaults() -> None:
    """00.12 Without settings everything has its default, and says so."""
    found = read_settings({})
    assert found == Settings()
    assert (found.database_url, found.listen_url, found.release, found.lane_suffix) == (None, None, None, None)
    assert (found.schema, found.home) == ("fencepost", Path(".fencepost"))
    assert (found.lease_seconds, found.heartbeat_seconds) == (30, 8)
    assert set(found.origins) == set(VARIABLES)
    assert set(found.origins.values()) == {"default"}


def test_every_setting_is_read_from_its_variable_and_trimmed() -> None:
    """00.12 Values are trimmed."""
    found = read_settings(
        {
            "FENCEPOST_DATABASE_URL": f"  {URL}\n",
            "FENCEPOST_LISTEN_URL": "\tpostgres:///app?host=/run/postgresql ",
            "FENCEPOST_SCHEMA": " Wörk flows ",
            "FENCEPOST_RELEASE": " 2026.11 ",
            "FENCEPOST_LANE_SUFFIX": " anna ",
            "FENCEPOST_HOME": " ~/data ",
            "FENCEPOST_FILES": " ~/files ",
            "FENCEPOST_STORE": " s3://bucket/a/prefix ",
            "FENCEPOST_LEASE_SECONDS": " 1.5 ",
            "FENCEPOST_HEARTBEAT_SECONDS": " 0.4\n",
        }
    )
    assert (found.database_url, found.listen_url) == (URL, "postgres:///app?host=/run/postgresql")
    assert (found.schema, found.release, found.lane_suffix) == ("Wörk flows", "2026.11", "anna")
    assert (found.home, found.files) == (Path.home() / "data", Path.home() / "files")
    assert found.store == "s3://bucket/a/prefix"
    assert (found.lease_seconds, found.heartbeat_seconds) == (1.5, 0.4)
    assert set(found.origins.values()) == {"environment"}


def test_files_of_plans_are_found_by_every_worker_of_a_host() -> None:
    """70.10 Beside the embedded database; with one of somebody else's, in one place for all workers of a user, wherever they start."""
    assert read_settings({"XDG_STATE_HOME": "/state"}).files == Path(".fencepost/files")
    assert read_settings({"FENCEPOST_HOME": "~/data"}).files == Path.home() / "data/files"
    assert read_settings({"XDG_STATE_HOME": "/state"}, dsn=URL).files == Path("/state/fencepost/files")
    assert read_settings({"FENCEPOST_DATABASE_URL": URL}).files == Path.home() / ".local/state/fencepost/files"


@pytest.mark.parametrize("blank", ["", " ", "\t\n ", "\u00a0"], ids=ascii)
def test_a_blank_setting_is_unset(blank: str) -> None:
    """00.12 Blank is unset, in the environment and as an argument, whatever else is there."""
    assert read_settings(dict.fromkeys(VARIABLES.values(), blank)) == Settings()
    found = read_settings(
        {"FENCEPOST_RELEASE": "r1"}, dsn=blank, schema=blank, release=blank, lane_suffix=blank, home=blank
    )
    assert found.release == "r1"
    assert found.origins["release"] == "environment"
    assert found.origins["schema"] == "default"


def test_an_argument_wins_over_the_environment() -> None:
    """00.12 Argument, environment, default: and each says where it came from."""
    environ = {
        "FENCEPOST_DATABASE_URL": "not even a URL",
        "FENCEPOST_SCHEMA": "theirs",
        "FENCEPOST_RELEASE": "r1",
        "FENCEPOST_LANE_SUFFIX": "x",
        "FENCEPOST_HOME": "/theirs",
        "FENCEPOST_LEASE_SECONDS": "60",
    }
    found = read_settings(environ, dsn=URL, schema="ours", release="r2", lane_suffix="y", home=Path("/ours"))
    assert (found.database_url, found.schema, found.release, found.lane_suffix) == (URL, "ours", "r2", "y")
    assert found.home == Path("/ours")
    assert found.origins == {
        "database_url": "argument",
        "listen_url": "default",
        "schema": "argument",
        "release": "argument",
        "lane_suffix": "argument",
        "home": "argument",
        "files": "default",
        "store": "default",
        "lease_seconds": "environment",
        "heartbeat_seconds": "default",
    }


def test_everything_wrong_is_named_at_once() -> None:
    """00.12 One error names each setting, what is wrong and what to set, and shows no secret."""
    problems = refused(
        {
            "FENCEPOST_DATABASE_URL": "mysql://anna:s3cret@db/app",
            "FENCEPOST_LISTEN_URL": "postgresql://anna:s3cret@db:port/app",
            "FENCEPOST_SCHEMA": "x" * 64,
            "FENCEPOST_RELEASE": "r\x1b1",
            "FENCEPOST_LANE_SUFFIX": "x" * 201,
            "FENCEPOST_HOME": "~nobody-of-that-name/x",
            "FENCEPOST_FILES": "~nobody-of-that-name/y",
            "FENCEPOST_STORE": "s3://anna:s3cret@bucket",
            "FENCEPOST_LEASE_SECONDS": "soon",
            "FENCEPOST_HEARTBEAT_SECONDS": "-1",
        }
    )
    assert len(problems) == len(VARIABLES)
    for variable in VARIABLES.values():
        [named] = [problem for problem in problems if problem.startswith(f"{variable} ")]
        assert ": set it, for example, to " in named
    assert "s3cret" not in str(problems)
    assert str(problems).isprintable()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *(("FENCEPOST_DATABASE_URL", url) for url in ["localhost", "host=db password=x", "postgresql:app", "://"]),
        ("FENCEPOST_DATABASE_URL", "postgresql://db:99999/app"),
        ("FENCEPOST_DATABASE_URL", "postgresql://[::1/app"),
        ("FENCEPOST_DATABASE_URL", "postgresql://db/a\nb"),
        ("FENCEPOST_SCHEMA", "é" * 32),
        ("FENCEPOST_SCHEMA", "pg_mine"),
        ("FENCEPOST_SCHEMA", "a\0b"),
        ("FENCEPOST_RELEASE", "\udcff"),
        *(("FENCEPOST_LEASE_SECONDS", text) for text in ["0", "-3", "nan", "inf", "1e999", "30 s", "0x10", "x" * 999]),
        ("FENCEPOST_HEARTBEAT_SECONDS", "inf"),
        *(
            ("FENCEPOST_STORE", url)
            for url in ["/mnt/store", "s3:/bucket", "s3://", "s3:///prefix", "ftp://host/x", "S3"]
        ),
        *(
            ("FENCEPOST_STORE", url)
            for url in ["file://host/x", "file:///", "gs://bucket?key=x", "s3://b\nc/x", "s3://[::1"]
        ),
    ],
    ids=ascii,
)
def test_an_unusable_setting_is_refused_by_name(variable: str, value: str) -> None:
    """00.12 Unusable is not unset: nothing falls back to a default in silence."""
    [problem] = refused({variable: value})
    assert problem.startswith(f"{variable} ")
    assert len(problem) < 250


def test_an_unusable_argument_is_named_as_an_argument() -> None:
    """00.12 Who gave an argument is told about the argument, not about a variable they never set."""
    problems = refused({}, dsn="localhost", schema="pg_x")
    assert [problem.split(" ")[:3] for problem in problems] == [
        ["the", "argument", "dsn"],
        ["the", "argument", "schema"],
    ]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/app",
        "postgres://u@[::1]:5432/app?sslmode=require",
        "postgresql:///app?host=/run/postgresql",
        "postgresql://u:p%40@a:1,b:2/app?target_session_attrs=primary",
        "postgresql://",
    ],
)
def test_urls_that_the_driver_takes_are_taken(url: str) -> None:
    """00.12 One host, several, a socket, or all by default."""
    assert read_settings({}, dsn=url).database_url == url


def test_a_lease_outlives_two_lost_heartbeats() -> None:
    """00.12 A lease of less than three heartbeats is refused, whichever of the two was set."""
    assert read_settings({"FENCEPOST_LEASE_SECONDS": "24"}).lease_seconds == 24
    assert read_settings({"FENCEPOST_HEARTBEAT_SECONDS": "10"}).heartbeat_seconds == 10
    for environ in (
        {"FENCEPOST_LEASE_SECONDS": "23.9"},
        {"FENCEPOST_HEARTBEAT_SECONDS": "10.1"},
        {"FENCEPOST_LEASE_SECONDS": "2", "FENCEPOST_HEARTBEAT_SECONDS": "1"},
    ):
        [problem] = refused(environ)
        assert "FENCEPOST_LEASE_SECONDS" in problem
        assert "FENCEPOST_HEARTBEAT_SECONDS" in problem
        assert "3 times" in problem


def test_all_missing_settings_are_named_at_once() -> None:
    """00.12 Who needs several is told of all that are missing."""
    with pytest.raises(BadSettings) as caught:
        require(Settings(schema="x"), "database_url", "schema", "release")
    assert [problem.split(" ")[0] for problem in caught.value.problems] == [
        "FENCEPOST_DATABASE_URL",
        "FENCEPOST_RELEASE",
    ]
    with pytest.raises(BadSettings, match="FENCEPOST_DATABASE_URL is not set: set it, for example, to postgresql://"):
        Settings().need_database_url()
    assert Settings(database_url=URL).need_database_url() == URL


def test_import_reads_no_setting() -> None:
    """00.12 Nothing is read at import: unusable settings hurt nobody who asks for none, and later ones count."""
    code = (
        "import os, sys; sys.path.insert(0, ''); import fencepost.settings as s\n"
        "try: s.read_settings()\n"
        "except s.BadSettings as error: assert len(error.problems) == 1\n"
        "else: raise SystemExit('was not refused')\n"
        "os.environ['FENCEPOST_LEASE_SECONDS'] = '99'; assert s.read_settings().lease_seconds == 99\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    subprocess.run([sys.executable, "-c", code], env={**kept, "FENCEPOST_LEASE_SECONDS": "soon"}, check=True)


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """00.12 Read when asked, from where the process stands."""
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("FENCEPOST_SCHEMA", "mine")
    assert read_settings().schema == "mine"


def test_settings_cannot_change() -> None:
    """00.12 One frozen object: what a process began with, it ends with."""
    found = read_settings({}, schema="x")
    with pytest.raises(AttributeError):
        found.schema = "y"  # type: ignore[misc]  # that is the attack
    with pytest.raises(TypeError):
        found.origins["schema"] = "default"  # type: ignore[index]  # that is the attack


# Secrets


def test_printing_the_settings_shows_no_secret() -> None:
    """00.12 Neither repr() nor masked() shows a password."""
    found = read_settings({"FENCEPOST_LISTEN_URL": URL + "?sslpassword=s3cret"}, dsn=URL)
    assert "s3cret" not in repr(found)
    shown = found.masked()
    assert shown["database_url"] == "postgresql://anna:***@db.example:5432/app"
    assert shown["listen_url"] == "postgresql://anna:***@db.example:5432/app?sslpassword=***"
    assert set(shown) == set(VARIABLES)
    assert (shown["release"], shown["lease_seconds"]) == ("", "30.0")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://h:5432/d", "postgresql://h:5432/d"),
        ("postgresql://h1:1,h2:2/d", "postgresql://h1:1,h2:2/d"),
        ("postgresql://u:@h/d", "postgresql://u:***@h/d"),
        ("postgresql://:p@h/d", "postgresql://:***@h/d"),
        ("postgresql://u:a/b?c#d@e:f@h/d", "postgresql://u:***@h/d"),
        (
            "postgresql://h/d?user=u&password=p%20q&sslmode=require",
            "postgresql://h/d?user=u&password=***&sslmode=require",
        ),
        ("host=h password=p user=u", "host=h password=*** user=u"),
        (r"host=h PASSWORD = 'p \' q' user=u", "host=h PASSWORD = *** user=u"),
        ("sslpassword=p", "sslpassword=***"),
        ("passfile=/etc/pass", "passfile=/etc/pass"),
    ],
)
def test_passwords_are_masked_wherever_they_stand(text: str, shown: str) -> None:
    """00.12 In the authority, in the query, in the keywords of a DSN."""
    assert mask(text) == shown


@given(st.text(min_size=1, max_size=12).filter(lambda text: text.strip()))
@example("p@ss:w/rd?#&")
def test_no_password_in_an_authority_passes_the_mask(password: str) -> None:
    """00.12 Property: whatever the password is made of."""
    secret = f"<{password}>"
    assert secret not in mask(f"postgresql://anna:{secret}@db/app")


# Which release


def test_the_release_is_the_first_that_is_said() -> None:
    """10.4 Explicit argument, lane suffix, release, dev."""
    both = {"FENCEPOST_LANE_SUFFIX": "anna", "FENCEPOST_RELEASE": "r1"}
    assert release_of(read_settings({})) == "dev"
    assert release_of(read_settings({"FENCEPOST_RELEASE": "r1"})) == "r1"
    assert release_of(read_settings(both)) == "dev-anna"
    assert release_of(read_settings(both, release="r2")) == "r2"
    assert release_of(read_settings(both, lane_suffix="bob")) == "dev-bob"
    assert release_of(read_settings({"FENCEPOST_RELEASE": "r1"}, lane_suffix="bob")) == "dev-bob"
    assert release_of(read_settings({**both, "FENCEPOST_LANE_SUFFIX": " "})) == "r1"


def test_a_remote_schema_has_a_release_of_its_own() -> None:
    """10.4 The first 12 hex digits of the schema's SHA-256: the same for whoever knows the name."""
    assert remote_release("fencepost") == "dev-" + hashlib.sha256(b"fencepost").hexdigest()[:12]
    assert remote_release("Wörk flows") == "dev-" + hashlib.sha256("Wörk flows".encode()).hexdigest()[:12]


def test_a_worker_of_another_schema_must_say_for_whom_it_works() -> None:
    """10.5 Refused with the names of the settings; a suffix or a release is enough."""
    check_worker(read_settings({}))
    check_worker(read_settings({"FENCEPOST_SCHEMA": "fencepost"}))
    with pytest.raises(BadSettings) as caught:
        check_worker(read_settings({"FENCEPOST_SCHEMA": "mine"}))
    for name in ("FENCEPOST_SCHEMA", "'mine'", "FENCEPOST_LANE_SUFFIX", "FENCEPOST_RELEASE"):
        assert name in str(caught.value)
    for said in ({"FENCEPOST_LANE_SUFFIX": "x"}, {"FENCEPOST_RELEASE": "r"}):
        check_worker(read_settings({"FENCEPOST_SCHEMA": "mine", **said}))
    check_worker(read_settings({"FENCEPOST_SCHEMA": "mine"}, release="r"))

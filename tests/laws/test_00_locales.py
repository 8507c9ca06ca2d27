"""Whatever language the database speaks: names are refused, found and ordered alike, and no index depends on it."""

from __future__ import annotations

import asyncpg
import pytest

from fencepost import admission
from fencepost.admission import Admitted, Refused
from fencepost.db import Database
from fencepost.schema import migrate
from tests.laws import doors
from tests.support import as_worker, connected, empty_database, launch

LOCALES = {
    "the C language": "template template0 locale 'C'",
    "a language of ICU": "template template0 locale_provider icu icu_locale 'tr' locale 'C'",
}


async def test_no_index_is_in_the_order_of_a_language(admin: asyncpg.Connection) -> None:
    """30.2 The C library and ICU change their orders with their versions; a unique index in such an order admits a run twice then."""
    found = await admin.fetch(
        """select i.indexrelid::regclass::text, l.collname from pg_index i join pg_class c on c.oid = i.indrelid
             cross join unnest(i.indcollation::oid[]) u(oid) join pg_collation l on l.oid = u.oid
            where c.relnamespace = 'fencepost'::regnamespace and l.collname <> 'C'"""
    )
    assert [tuple(row) for row in found] == []


@pytest.mark.usefixtures("template")  # it makes the login
@pytest.mark.parametrize("language", LOCALES)
async def test_the_language_of_the_database_changes_nothing(server: str, language: str) -> None:
    """30.6 The same control characters are refused; and every door answers as it does elsewhere."""
    async with connected(server) as one:
        if "ICU" in language and not await one.fetchval(
            "select exists (select from pg_collation where collname = 'tr-x-icu')"
        ):
            pytest.skip("this server was built without ICU")
    async with empty_database(server, LOCALES[language]) as dsn:
        async with connected(dsn) as owner:
            await migrate(owner, "fencepost", roles=True)
        db = Database(as_worker(dsn), connections=2)
        try:
            await doors.walk(db)
            for control in ("\x01", "\x1f", "\x7f", "\x80", "\x85", "\x9f", "\u2028", "\u2029"):
                for word in ("org", "id", "name"):
                    assert await admission.admit(db, [launch(**{word: f"a{control}z"})]) == [Refused()], repr(control)
            (answer,) = await admission.admit(db, [launch(id="\u0130\u0131\xa0\u200b \u202e")])
            assert isinstance(answer, Admitted), "odd, and no control characters"
        finally:
            await db.close()

"""The work of the example: read a sheet of airports, locate each one, sum them up. Pure: the same in, the same out.

A row is a plain `dict[str, str]`; what comes out is a frozen dataclass of JSON types. The two tables that rows are
judged by, `iso3166.tab` and `zone1970.tab` of the IANA time zone database, lie in `data/` (see NOTICE there).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Row: TypeAlias = dict[str, str]
Reason = Literal["unknown-country", "unlisted-zone", "other-country"]

DATA = Path(__file__).parent / "data"
AIRPORTS = DATA / "airports.csv"
KEY = "icao"  # unique in a sheet, and so the key of a map over its rows
NEEDED = (KEY, "iata", "name", "city", "country", "tz")
SURROGATE = re.compile("[\udc80-\udcff]")


class BadSheet(ValueError):
    """A sheet that cannot be read; says the file, the line and the column, both counted from 1.

    The line is the one on which the record begins, the column is the number of the field in it: 1 if the record cannot
    be split into fields, and the one after the last where a field or a column of the header is missing.
    """

    def __init__(self, path: str | Path, line: int, column: int, problem: str) -> None:
        super().__init__(f"{Path(path).name}, line {line}, column {column}: {problem}")
        self.line = line
        self.column = column
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Located:
    """An airport with the name of its country, and whether its time zone is one of that country's.

    `reason` says why `zone_ok` is false: `unknown-country`, iso3166.tab has no such code; `unlisted-zone`,
    zone1970.tab has no zone of that name (it lists one name for all zones that agree since 1970, so an older name
    such as Europe/Stockholm tells the right time and is still not in it); `other-country`, the zone is listed, but
    not for this country.
    """

    icao: str
    iata: str
    name: str
    city: str
    country: str
    country_name: str | None
    zone: str
    zone_ok: bool
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over located rows. `countries` counts rows by ISO code, `reasons` those whose zone is not ok.

    `sha256` is the hash of the canonical JSON of the rows in their order: one row changed, lost, doubled or moved is
    another hash.
    """

    rows: int
    countries: dict[str, int]
    zones_ok: int
    zones_not_ok: int
    reasons: dict[str, int]
    sha256: str


def read_rows(path: str | Path, limit: int | None = None) -> list[Row]:
    """The first `limit` rows of a UTF-8 CSV sheet, or all; keys are the header's names.

    The whole sheet is checked, whatever the limit. BadSheet where it is broken, OSError where it cannot be opened,
    ValueError for a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    records = _records(path)
    if not records:
        raise BadSheet(path, 1, 1, "the sheet is empty: it has no header")
    (line, header), *body = records
    _check_header(path, line, header)
    place = header.index(KEY)
    first_seen: dict[str, int] = {}
    for line, fields in body:
        if len(fields) != len(header):
            column = min(len(fields), len(header)) + 1
            raise BadSheet(path, line, column, f"{len(fields)} fields where the header has {len(header)}")
        key = fields[place]
        if not key:
            raise BadSheet(path, line, place + 1, f"the key {KEY!r} is empty")
        if key in first_seen:
            raise BadSheet(path, line, place + 1, f"the key {key!r} is already that of line {first_seen[key]}")
        first_seen[key] = line
    return [dict(zip(header, fields, strict=True)) for _, fields in body[:limit]]


def locate(row: Row) -> Located:
    """Joins the name of the row's country and judges its time zone; KeyError if a needed field is missing."""
    country, zone = row["country"], row["tz"]
    reason = _objection(country, zone)
    return Located(
        icao=row["icao"],
        iata=row["iata"],
        name=row["name"],
        city=row["city"],
        country=country,
        country_name=_country_names().get(country),
        zone=zone,
        zone_ok=reason is None,
        reason=reason,
    )


def summarise(rows: Sequence[Located]) -> Summary:
    """Sums up located rows; their order matters to the hash alone."""
    countries = Counter(row.country for row in rows)
    reasons = Counter(row.reason for row in rows if row.reason is not None)
    return Summary(
        rows=len(rows),
        countries=dict(sorted(countries.items())),
        zones_ok=sum(row.zone_ok for row in rows),
        zones_not_ok=sum(not row.zone_ok for row in rows),
        reasons=dict(sorted(reasons.items())),
        sha256=hashlib.sha256(canonical([asdict(row) for row in rows]).encode()).hexdigest(),
    )


def canonical(value: object) -> str:
    """JSON with sorted keys and no blanks: RFC 8785 for what is used here (text, whole numbers, true, false, null)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _objection(country: str, zone: str) -> Reason | None:
    if country not in _country_names():
        return "unknown-country"
    if zone not in _zone_countries():
        return "unlisted-zone"
    return None if country in _zone_countries()[zone] else "other-country"


def _records(path: str | Path) -> list[tuple[int, list[str]]]:
    """Every record with the line it begins on. A byte order mark is skipped; BadSheet for bytes that are not UTF-8."""
    # Bytes that are not UTF-8 come through as lone surrogates, so that the field they are in can be named.
    text = Path(path).read_bytes().decode("utf-8-sig", errors="surrogateescape")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    records: list[tuple[int, list[str]]] = []
    begins = 1
    try:
        for fields in reader:
            for column, field in enumerate(fields, start=1):
                if bad := SURROGATE.search(field):
                    byte = ord(bad.group()) - 0xDC00
                    raise BadSheet(path, begins, column, f"the byte 0x{byte:02x} is not UTF-8")
            records.append((begins, fields))
            begins = reader.line_num + 1
    except csv.Error as error:
        raise BadSheet(path, begins, 1, f"the record is not CSV: {error}") from error
    return records


def _check_header(path: str | Path, line: int, header: list[str]) -> None:
    for column, name in enumerate(header, start=1):
        if name in header[: column - 1]:
            raise BadSheet(path, line, column, f"the column {name!r} is there twice")
    for name in NEEDED:
        if name not in header:
            raise BadSheet(path, line, len(header) + 1, f"the column {name!r} is missing")


@cache
def _country_names() -> dict[str, str]:
    """ISO 3166 code → usual English name."""
    return {fields[0]: fields[1] for fields in _table("iso3166.tab")}


@cache
def _zone_countries() -> dict[str, frozenset[str]]:
    """Zone name → codes of the countries it is listed for."""
    return {fields[2]: frozenset(fields[0].split(",")) for fields in _table("zone1970.tab")}


def _table(name: str) -> list[list[str]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if line and not line.startswith("#")]

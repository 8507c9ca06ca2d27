"""Make `data/` again from the installed packages `airportsdata` and `tzdata` (for developers; users never run it).

From the folder `examples`: `python -m airports.make_data`. The versions are fixed, because the tests record the hashes
of what this writes: another version is refused until it is named here and the hashes are recorded anew.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

DATA = Path(__file__).parent / "data"
ROWS = 3_000
VERSIONS = {"airportsdata": "20260905", "tzdata": "2026.6"}
IANA_VERSION = "2026f"  # what tzdata 2026.6 carries, by its own `tzdata.IANA_VERSION`

NOTICE = f"""\
airports.csv
  The header and the first {ROWS} rows with a non-empty IATA code, in file order and byte for byte, of airports.csv in
  the Python package airportsdata, version {VERSIONS["airportsdata"]}. MIT licence: see LICENSE-airportsdata beside
  this file.

iso3166.tab, zone1970.tab
  Two tables of the IANA time zone database, version {IANA_VERSION}, unchanged, as the Python package tzdata
  {VERSIONS["tzdata"]} ships them. Both files are in the public domain, as their first lines say.

Made by ../make_data.py.
"""


def first_with_iata(lines: Iterable[bytes], count: int) -> bytes:
    """The header and the first `count` lines that have an IATA code, untouched; ValueError if there are fewer."""
    header, *records = lines
    place = next(csv.reader([header.decode()])).index("iata")
    kept = [line for line in records if next(csv.reader([line.decode()], strict=True))[place]][:count]
    if len(kept) < count:
        raise ValueError(f"only {len(kept)} rows have an IATA code; {count} are wanted")
    return header + b"".join(kept)


def packaged(package: str, ending: str) -> bytes:
    """One file of an installed package, found by the end of its path; LookupError if the package has none."""
    for file in metadata.distribution(package).files or []:
        if file.as_posix().endswith(ending):
            return Path(str(file.locate())).read_bytes()
    raise LookupError(f"{package} has no file that ends in {ending}")


def main() -> None:
    """Write the five files of `data/`; SystemExit if a package is not of the version named above."""
    for package, wanted in VERSIONS.items():
        if (found := metadata.version(package)) != wanted:
            raise SystemExit(f"{package} {found} is installed; this data is made from {wanted}")
    lines = packaged("airportsdata", "airportsdata/airports.csv").splitlines(keepends=True)
    files = {
        "airports.csv": first_with_iata(lines, ROWS),
        "LICENSE-airportsdata": packaged("airportsdata", "licenses/LICENSE"),
        "iso3166.tab": packaged("tzdata", "zoneinfo/iso3166.tab"),
        "zone1970.tab": packaged("tzdata", "zoneinfo/zone1970.tab"),
        "NOTICE": NOTICE.encode(),
    }
    DATA.mkdir(exist_ok=True)
    for name, content in files.items():
        (DATA / name).write_bytes(content)


if __name__ == "__main__":
    main()

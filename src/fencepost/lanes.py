"""Lanes: which queue a release's runs ride. Chapter 10_lanes.sql."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.db import Database


@dataclass(frozen=True, slots=True)
class Lane:
    """`lane` is the internal number, `name` the table-safe name, `release` the id as given."""

    lane: int
    name: str
    release: str


class LaneRefused(Exception):
    """The release id cannot have a lane; the message names the holder or the rule, and the remedy (law 10.3)."""


async def register(db: Database, release: str) -> Lane:
    """The lane of a release, registered on first use. Source: register_lane, laws 10.2-10.4. Raises LaneRefused."""
    row = (await db.call("register_lane", release))[0]
    match row["answer"]:
        case "registered":
            return Lane(row["lane"], row["name"], release)
        case "refused_twin":
            raise LaneRefused(
                f"release {release!r} would ride lane {row['name']}, which belongs to release {row['holder']!r}: choose another release id"
            )
        case "refused_dev":
            raise LaneRefused(
                f"release {release!r} looks like dev: use dev, dev-<suffix>, or a production id of another form"
            )
        case _:
            raise LaneRefused(
                f"release {release!r} names nothing: use letters, digits, dots, dashes or underscores (at most 200)"
            )


async def read(db: Database) -> list[Lane]:
    """Every registered lane, oldest first. Source: read_lanes."""
    return [Lane(row["lane"], row["name"], row["release"]) for row in await db.call("read_lanes")]

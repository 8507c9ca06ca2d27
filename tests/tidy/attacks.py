"""The cases of the attack list: what broke in systems of this kind, each with its number and one right outcome.

A test that attacks a case names it (`B80`) in its docstring, or in a comment where the case is a scenario of a table.
"""

from __future__ import annotations

from typing import Final

CASES: Final = frozenset({
    1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 15, 16, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 40, 41, 42, 43, 44, 45, 47, 48, 49,
    51, 53, 55, 56, 57, 59, 61, 62, 63, 64, 65, 67, 69, 71, 72, 73, 75, 77, 79, 80, 81, 83, 85, 87, 89, 91, 92, 93, 94, 95, 97, 98,
    99, 101, 103, 105, 106, 107, 109, 110, 111, 113, 114, 115, 117, 119, 121, 123, 125, 127, 129, 131, 132, 133, 135, 137, 139, 140,
    141, 143, 145, 146,
})  # fmt: skip

# Cases that have nothing here yet to attack, and what will bring it. An entry that gains a test must go.
WITHOUT_SUBJECT: Final[dict[str, str]] = {
    "B12": "detached runners: one that lived through an outage of everything else is attached to again, its result salvaged",
    "B64": "capacity and detached runners: a slot whose holder is silent is nobody else's before its death is confirmed",
    "B67": "capacity: each of several gates counts its own slots",
    "B69": "concurrency keys: a saturated one stands in nobody's way",
    "B72": "schedules: one admission for each slot, whoever fires it",
    "B73": "schedules: a clock that steps back fires no slot again",
    "B75": "schedules: what a slot means where the hour is skipped or comes twice",
    "B77": "schedules: they go on after a long outage and make up for it",
    "B79": "schedules: many deployers declare the same ones at once",
    "B121": "sandboxes: the intent is on record before anything is created",
    "B123": "sandboxes: what a failed set-up leaves is owned and reaped",
    "B125": "sandboxes: every state of a provider has a time-out and an exit",
    "B127": "detached runners and adoption: a finished result is salvaged once, a torn one never",
    "B129": "the gateway: upstreams are named on the server",
    "B145": "adoption: nobody is elected yet, and no tenure outlives a statement",
    "B146": "adoption: the waits of a retired lane go to the next, its begun work to nobody",
}

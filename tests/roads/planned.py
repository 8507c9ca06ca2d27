"""Plans for the command line's tests: real programs, small enough to read."""

from __future__ import annotations

from tests.roads.command import SOON, Shop
from tests.roads.crew import until

NOTES = r"""
name = "notes"

[[step]]
id = "log"
command = ["sh", "-c", "printf 'one\ntwo\n'; echo reading >&2"]
outputs.log = { from = "stdout" }

[[step]]
id = "count"
needs = ["log"]
command = ["sh", "-c", "grep -c '' < \"$0\"", "{inputs.log.path}"]
handoffs = [{ input = "log", from = "log.log", mode = "content" }]
outputs.lines = { from = "stdout", media_type = "application/json" }
"""

FAILS = """
name = "fails"

[[step]]
id = "first"
command = ["sh", "-c", "echo no paper >&2; exit 7"]
retry = { max_attempts = 2, on = ["failure"] }

[[step]]
id = "second"
needs = ["first"]
command = ["true"]

[[step]]
id = "third"
needs = ["second"]
command = ["true"]

[[step]]
id = "aside"
command = ["true"]
"""

# It writes its pid into a book outside, and goes on when the file `go` is there.
WAITS = """
name = "waits"

[[step]]
id = "wait"
command = ["sh", "-c", "echo $$ >> '{book}'; echo begun; until [ -e '{go}' ]; do sleep 0.05; done; echo done"]
outputs.said = {{ from = "stdout" }}
on_lost = "{on_lost}"

[[step]]
id = "after"
needs = ["wait"]
command = ["sh", "-c", "echo after >> '{book}'"]
"""

CALLS = """
name = "calls"

[[step]]
id = "order"
workflow = "shop:order"
input = { n = 4 }
"""


def write(shop: Shop, name: str, text: str) -> str:
    """A plan's file in the shop."""
    (shop.place / name).write_text(text)
    return name


def waits(shop: Shop, on_lost: str = "fail") -> str:
    """The plan that waits, in the shop."""
    return write(shop, "waits.toml", WAITS.format(book=shop.place / "book", go=shop.place / "go", on_lost=on_lost))


def book(shop: Shop) -> list[str]:
    """What the programs wrote into the book."""
    path = shop.place / "book"
    return path.read_text().split() if path.exists() else []


async def begun(shop: Shop) -> int:
    """The pid of the program that waits, once it has begun."""
    await until(lambda: book(shop), "the program's line in the book", SOON)
    return int(book(shop)[0])

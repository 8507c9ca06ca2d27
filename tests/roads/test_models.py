"""Models that authors bring, through a real worker and over a park: what the code is given is the same value of the same type."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NotRequired, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

from fencepost import App, Context, RunFailed
from fencepost.client import Client
from fencepost.client.handle import Handle
from fencepost.client.launching import judge_input
from fencepost.db import Database
from fencepost.settings import read_settings
from fencepost.values import Undecodable
from fencepost.worker.loop import run_worker


class Address(BaseModel):
    street: str
    zip: str | None = None


@dataclass
class Line:
    sku: str
    price: Decimal
    gift: Address | None = None
    tags: list[str] = field(default_factory=list)


class Note(TypedDict):
    text: str
    at: datetime
    by: NotRequired[Address]


class Parcel(msgspec.Struct):
    number: int
    lines: list[Line]
    note: Note | None = None


class Order(BaseModel):
    lines: list[Line]
    ship_to: Address | None = None
    others: dict[str, Address | None] = {}


@dataclass
class Basket:
    parcels: list[Parcel]
    notes: list[Note | None]
    address: Address | None = None


class Letter(TypedDict):
    parcel: Parcel | None
    orders: list[Order]


class Crate(msgspec.Struct, frozen=True):
    baskets: list[Basket]
    address: Address | None = None
    letter: Letter | None = None


HOME = Address(street="Elm 4", zip="007")
AWAY = Address(street="Oak 1")
LINE = Line("a-1", Decimal("9.90"), HOME, ["red", "small"])
BARE = Line("b-2", Decimal(3))
NOTE = Note(text="ring twice", at=datetime(2026, 3, 1, 12, 30, tzinfo=UTC), by=AWAY)
CALM = Note(text="no hurry", at=datetime(2026, 3, 1, tzinfo=UTC))
PARCEL = Parcel(7, [LINE, BARE], NOTE)
ORDER = Order(lines=[LINE, BARE], ship_to=HOME, others={"left": AWAY, "right": None})
BASKET = Basket([PARCEL, Parcel(8, [])], [NOTE, None, CALM], AWAY)
LETTER = Letter(parcel=PARCEL, orders=[ORDER, Order(lines=[])])

# The type, a full value of it, a bare one, and a misfit of its JSON with the path of what does not fit.
KINDS: dict[str, tuple[Any, Any, Any, Any, str]] = {
    "pydantic": (Order, ORDER, Order(lines=[]), {"lines": [], "ship_to": {"street": 4}}, "ship_to.street"),
    "dataclass": (Basket, BASKET, Basket([], []), {"parcels": [{"number": "7", "lines": []}], "notes": []}, "parcels[0].number"),
    "struct": (Crate, Crate([BASKET], HOME, LETTER), Crate([]), {"baskets": [{"parcels": [], "notes": [{}]}]}, "baskets[0].notes[0]"),
    "typeddict": (Letter, LETTER, Letter(parcel=None, orders=[]), {"parcel": None, "orders": [{"lines": {}}]}, "orders[0].lines"),
}  # fmt: skip
BY_KIND = pytest.mark.parametrize("kind", KINDS)


class Shop:
    """An app whose one workflow hands values of one type over every road; `given[attempt]`: what its code was given, in order."""

    def __init__(self, of: Any) -> None:
        self.app = App("models", release="dev")
        self.given: dict[int, list[Any]] = {}
        self.packed: list[Any] = []

        @self.app.step()
        async def pack(one: of, many: list[of], perhaps: of | None = None, *, last: of | None) -> of:
            self.packed.append([one, many, perhaps, last])
            return one

        @self.app.step(repeatable=True)
        def split(many: list[of]) -> dict[str, list[of | None]]:
            return {"all": [*many, None]}

        @self.app.step(repeatable=True)
        async def find(row: of) -> of | None:
            return row

        @self.app.workflow()
        async def flow(ctx: Context, given: of) -> list[of | None]:
            seen = self.given[ctx.attempt] = [given]
            seen.append(await ctx.step(pack, given, [given, given], last=None))
            seen.append(await ctx.step(split, [given]))
            seen.append(list(await ctx.map(find, [given], key=lambda _: "only")))
            seen.append(await ctx.wait_for("one", of))
            seen.append(await ctx.wait_for("several", list[of | None]))
            return [seen[1], None, seen[4]]

        self.flow = flow


@contextlib.asynccontextmanager
async def working(app: App, worker_dsn: str) -> AsyncIterator[None]:
    """A worker of this process; ready."""
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = replace(read_settings({}, dsn=worker_dsn), lease_seconds=9.0, heartbeat_seconds=0.5)
    task = asyncio.ensure_future(run_worker(app, settings, stop=stop, on_ready=lambda _: ready.set()))
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    assert ready.is_set(), task.exception() if task.done() else "not ready"
    try:
        yield
    finally:
        stop.set()
        assert await task == 0


async def parked(handle: Handle[Any]) -> None:
    async with asyncio.timeout(20):
        async for event in handle.watch():
            if event.type == "attempt.parked":
                return


def typed(value: Any) -> Any:
    """A value with the types of all its parts, for two may be equal without being the same."""
    if isinstance(value, BaseModel):
        parts: Any = {name: typed(getattr(value, name)) for name in type(value).model_fields}
    elif isinstance(value, list):
        parts = [typed(one) for one in value]
    elif isinstance(value, dict):
        parts = {name: typed(one) for name, one in value.items()}
    elif hasattr(value, "__dataclass_fields__") or isinstance(value, msgspec.Struct):
        names = getattr(value, "__dataclass_fields__", None) or value.__struct_fields__
        parts = {name: typed(getattr(value, name)) for name in names}
    else:
        parts = value
    return type(value), parts


@BY_KIND
async def test_the_code_is_given_the_same_values_and_types_on_both_passes(kind: str, worker_dsn: str) -> None:
    """50.1 Input, results and signals; and a step its arguments, once."""
    of, full, bare, _, _ = KINDS[kind]
    shop = Shop(of)
    async with working(shop.app, worker_dsn), Client(Database(worker_dsn)) as client:
        handle = await client.start(shop.flow, full)
        await parked(handle)
        assert await handle.signal("one", bare) == "sent"
        assert await handle.signal("several", [full, None, bare]) == "sent"
        output = await handle.result(timeout=20)
    expected = [full, full, {"all": [full, None]}, [full], bare, [full, None, bare]]
    first, *_, last = (shop.given[attempt] for attempt in sorted(shop.given))
    assert len(shop.given) >= 2, "it parked in between"
    assert typed(first) == typed(expected[:4])
    assert typed(last) == typed(expected)
    assert typed(output) == typed([full, None, bare])
    assert typed(shop.packed) == typed([[full, [full, full], None, None]]), "it ran once"


@BY_KIND
async def test_a_misfit_input_is_refused_with_its_path_before_anything_begins(kind: str, worker_dsn: str) -> None:
    """50.4 By who judges the text before it is sent, and by the worker: the code never begins, nothing is recorded."""
    of, _, _, misfit, path = KINDS[kind]
    shop = Shop(of)
    with pytest.raises(Undecodable, match=r"\$") as refused:
        judge_input(shop.flow, msgspec.json.encode(misfit).decode())
    assert path in refused.value.problem
    async with working(shop.app, worker_dsn), Client(Database(worker_dsn)) as client:
        handle = await client.start(shop.flow, misfit)
        with pytest.raises(RunFailed) as failed:
            await handle.result(timeout=20)
        events = [event.type async for event in handle.watch()]
    assert failed.value.code == "UNDECODABLE"
    assert path in failed.value.message
    assert shop.given == {}
    assert shop.packed == []
    assert not any(event.startswith("step") for event in events)


def test_importing_fencepost_imports_no_pydantic() -> None:
    """00.6 Nor does declaring and encoding what is no model of pydantic's."""
    code = (
        "import sys, fencepost, fencepost.worker.loop, fencepost.client, fencepost.sync\n"
        "from dataclasses import dataclass\n"
        "@dataclass\nclass A: x: int\n"
        "app = fencepost.App('a')\n"
        "@app.step()\nasync def s(a: A) -> list[A]: return [a]\n"
        "@app.workflow()\nasync def f(ctx: fencepost.Context, a: A) -> A: return a\n"
        "assert f.returns is A and s.returns == list[A]\n"
        "assert not [m for m in sys.modules if m.partition('.')[0] == 'pydantic']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""The example as a workflow: ask the cheapest service first, the next only if that one has no answer, and never pay twice."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost import Absent, Answer, App, Context, Found, Retry, Unknown, step_key

from . import service

app = App("enrich")


@dataclass(frozen=True)
class Country:
    """An airport's country, and the service that said so; `nobody` where none did."""

    icao: str
    provider: str
    country: str | None


async def on_atlas_bill(key: str, icao: str) -> Found[str | None] | Absent | Unknown:  # noqa: ARG001 - the step's
    """After a loss: was this very call charged? The service knows calls by the key that came with them."""
    charged, country = await service.billed("atlas", key)
    return Found(country) if charged else Absent()


async def on_gazetteer_bill(key: str, icao: str) -> Found[str | None] | Absent | Unknown:  # noqa: ARG001 - the step's
    """The same, of the other service."""
    charged, country = await service.billed("gazetteer", key)
    return Found(country) if charged else Absent()


# Flaky. Busy is an answer: nothing happened, so it may be tried again. A connection that was cut is none: look at the bill.
@app.step(lookup=on_atlas_bill, settle=1, unknown_on=[service.Cut], retry=Retry(4, on=(service.Away,), delay=0.1))
async def atlas(icao: str) -> str | None:
    """The cheapest."""
    return await service.ask("atlas", step_key(), icao)


# Slow. Half a second, then nobody knows whether it was charged: look at the bill.
@app.step(lookup=on_gazetteer_bill, settle=1, timeout=0.5, unknown_on=[service.Cut])
async def gazetteer(icao: str) -> str | None:
    """Dearer."""
    return await service.ask("gazetteer", step_key(), icao)


# Rate-limited, and says for how long. It shows its bill to people only, so what is lost here waits for one.
@app.step(
    unknown_on=[service.Cut],
    retry=Retry(60, on=(service.Away,), delay=0.1, after=lambda e: getattr(e, "seconds", None)),
)
async def registry(icao: str) -> str | None:
    """The dearest."""
    return await service.ask("registry", step_key(), icao)


@app.workflow()
async def enrich(ctx: Context, icao: str) -> Country:
    """One airport. A service that fails or has no answer is passed over; one that nobody knows about stops it."""
    found = await ctx.waterfall("country", [atlas, gazetteer, registry], icao)
    if isinstance(found, Answer):
        return Country(icao, found.provider, found.value)
    return Country(icao, "nobody", None)

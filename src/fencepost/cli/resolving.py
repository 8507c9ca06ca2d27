"""What `runs resolve` hands to the door: the value or error of a verdict, and which step, row or attempt it speaks of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from fencepost.cli import inputs
from fencepost.cli.say import USAGE, Stop

if TYPE_CHECKING:
    from fencepost.db import Database
    from fencepost.words import Verdict


def verdict_value(verdict: str, value: str | None, error: str | None) -> str | None:
    """The JSON text of `completed`, the sentence of `failed`; None else. Raises Stop (2) for an option that does not belong."""
    if verdict == "completed":
        if value is None or error is not None:
            raise Stop(USAGE, "USAGE", "completed needs what it returned: --value JSON (null where it returns nothing)")
        return inputs.json_text(value, "the value")
    if verdict == "failed":
        if error is None or value is not None:
            raise Stop(USAGE, "USAGE", "failed needs why: --error TEXT")
        return error
    if value is not None or error is not None:
        raise Stop(USAGE, "USAGE", f"{verdict} takes neither --value nor --error")
    return None


async def resolve_run(
    db: Database, org: str, run_id: str, *, verdict: str, step: str | None, row: str | None, text: str | None
) -> tuple[str, str | None]:
    """Ask the door; (answer, why)."""
    from fencepost import ledger, recovery
    from fencepost.explain import part

    if verdict == "failed":
        code = "STEP_FAILED"
        if step is None and row is None:
            # A lost attempt that failed keeps the code of its loss.
            doc = await ledger.read_run(db, org, run_id) or {}
            code = part(doc, "task").get("unknown") or "RUNNER_LOST"
        text = _error(code, text)
    name, ordinal = inputs.step(step) if step else (None, None)
    return await recovery.resolve(
        db,
        org,
        run_id,
        step=name,
        ordinal=ordinal,
        row_key=row,
        verdict=cast("Verdict", verdict),
        value=text,
        by=inputs.person(),
    )


async def resolve_batch(
    db: Database, org: str, run_id: str, keys: Sequence[str], *, verdict: str, step: str | None, text: str | None
) -> list[tuple[str, str | None]]:
    """Ask the door about many rows in one transaction; (answer, why) for each, in order."""
    from fencepost import recovery

    name, ordinal = inputs.step(step) if step else (None, None)
    answers = await recovery.resolve_rows(
        db,
        org,
        run_id,
        step=name,
        ordinal=ordinal,
        keys=keys,
        verdict=cast("Verdict", verdict),
        value=_error("STEP_FAILED", text) if verdict == "failed" else text,
        by=inputs.person(),
    )
    return [(answer, why) for answer, why in answers]


def _error(code: str, message: str | None) -> str:
    from fencepost.values import encode_error

    text = encode_error({"code": code, "message": message, "by": inputs.person()})
    assert json.loads(text)
    return text

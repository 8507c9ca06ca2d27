"""Bounds, each with its unit in its name. Their relations are asserted at import: a wrong constant stops the process."""

from __future__ import annotations

from typing import Final

LEASE_SECONDS: Final = 30.0
HEARTBEAT_SECONDS: Final = 8.0  # how often a living worker is heard
LEASE_HEARTBEATS_MIN: Final = 3  # two may be lost before the lease is: one to a slow network, one to a slow database
assert LEASE_SECONDS >= LEASE_HEARTBEATS_MIN * HEARTBEAT_SECONDS, (LEASE_SECONDS, HEARTBEAT_SECONDS)

IDLE_POLL_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 1.0  # how often a running leg with armed waits looks, should no hint reach it
GRACE_ON_STOP_SECONDS: Final = 20.0
GRACE_ON_CANCEL_SECONDS: Final = 30.0
SETTLE_SECONDS: Final = 30.0  # 50.11
LOOKUP_TIMEOUT_SECONDS: Final = 30.0
WORKFLOW_MISSING_SECONDS: Final = 30.0  # 40.5: the deferral of a run whose workflow this worker does not have

CLAIM_RUNS_MAX: Final = 128  # their boundaries share 8 MiB (take_)
COALESCE_ITEMS_MAX: Final = 256
COALESCE_BYTES_MAX: Final = 8 * 1024 * 1024
BULK_RUNS_MAX: Final = 2000
BULK_IN_FLIGHT: Final = 2  # bulk admissions of one call under way at a time
PAYLOAD_BYTES: Final = 4 * 1024 * 1024
PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024
ERROR_BYTES: Final = 16 * 1024
NAME_CHARS: Final = 200
assert PAYLOAD_BYTES <= COALESCE_BYTES_MAX, "a payload must fit into a batch"

BOUNDARIES_WARN: Final = 10_000
BOUNDARIES_MAX: Final = 100_000
ROWS_PAGE_BYTES: Final = 4 * 1024 * 1024
assert BOUNDARIES_WARN < BOUNDARIES_MAX

STATEMENT_SECONDS: Final = 30.0  # longer than any door takes; a frozen server is met as weather
CLIENT_PATIENCE_SECONDS: Final = 30.0  # how long a client's call rides out weather
WEATHER_PAUSE_SECONDS_MIN: Final = 0.05
WEATHER_PAUSE_SECONDS_MAX: Final = 5.0
TOGETHER_PATIENCE_SECONDS: Final = 1.0  # how long a batch of launches rides out weather before they go one by one
ADMISSION_PATIENCE_MS: Final = 50  # a twin uncommitted elsewhere is met as weather, then asked alone
WAITERS_MAX: Final = 10_000  # callers that may wait for a connection; one more is told `busy` (00.11)
CONNECTIONS: Final = 2

SCRATCH_SECONDS: Final = 6 * 3600
RUNS_SECONDS: Final = 30 * 24 * 3600
RETAIN_RUNS_MAX: Final = 1000
assert SCRATCH_SECONDS < RUNS_SECONDS

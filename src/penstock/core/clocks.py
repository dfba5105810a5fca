"""The clocks: one that leases are measured with, and the time of day.

All processes of a machine share the first, and no one can set it. The time of day is for people to read:
nothing is ever decided by it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def now() -> float:
    """Seconds since the machine started, including those it slept where the system counts them.

    What a lease is measured with: one that ran out while its owner slept is over.
    """
    return time.clock_gettime(_CLOCK)


@cache
def boot() -> str:
    """Names this run of the machine: times of another one mean nothing here."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_clock(precision: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """Now, in UTC, such as 2026-01-05T12:00:00.000Z."""
    return datetime.now(UTC).isoformat(timespec=precision).replace("+00:00", "Z")

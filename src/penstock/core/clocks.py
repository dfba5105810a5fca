"""A clock that all processes of one machine share, and that no one can set."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

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

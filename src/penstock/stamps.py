"""The time of day, for people to read. Nothing is ever decided by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal


def wall_clock(precision: Literal["seconds", "milliseconds"] = "milliseconds") -> str:
    """Now, in UTC, such as 2026-01-05T12:00:00.000Z."""
    return datetime.now(UTC).isoformat(timespec=precision).replace("+00:00", "Z")

"""Values of ours as JSON values."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from penstock.core import json_values

EXACT = 2**53 - 1
"""The greatest integer that every reader of JSON takes exactly; beyond it they are texts."""


def plain(value: Any) -> Any:
    """Any view as JSON values that every reader takes as they are."""
    return json_values.plain(value, scalar)


def scalar(value: Any) -> Any:
    """A value of a row as JSON has it; lists and structs go inside."""
    found = value
    if isinstance(value, bool) or value is None or isinstance(value, str):
        pass
    elif isinstance(value, int):
        found = value if -EXACT <= value <= EXACT else str(value)
    elif isinstance(value, float):
        found = value if math.isfinite(value) else _special(value)
    elif isinstance(value, Decimal):
        found = f"{value:f}"
    elif isinstance(value, datetime | date | time):
        found = value.isoformat().replace("+00:00", "Z")
    elif isinstance(value, bytes):
        found = base64.b64encode(value).decode()
    elif isinstance(value, timedelta):
        found = duration(0, value.days, (value.seconds * 1_000_000 + value.microseconds) * 1000)
    elif isinstance(value, Mapping):
        found = {str(key): scalar(item) for key, item in value.items()}
    elif type(value).__name__ == "MonthDayNano":
        found = duration(*value)
    elif isinstance(value, list | tuple):
        found = [scalar(item) for item in value]
    else:
        found = str(value)
    return found


def duration(months: int, days: int, nanoseconds: int) -> str:
    """An interval by ISO 8601, as PostgreSQL writes it with ``intervalstyle = iso_8601``."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    minutes, rest = divmod(rest, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest // 1_000_000_000}.{rest % 1_000_000_000:09d}".rstrip("0").rstrip(".")
    years, months = int(months / 12), int(math.fmod(months, 12))
    day = "".join(f"{n}{unit}" for n, unit in ((years, "Y"), (months, "M"), (days, "D")) if n)
    clock = "".join(
        f"{sign}{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n not in (0, "0")
    )
    return f"P{day}T{clock}" if clock else f"P{day}" if day else "PT0S"


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

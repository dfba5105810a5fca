"""Lengths of time: seconds or a timedelta, in whole milliseconds, which is what Spark counts in."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TypeAlias

from penstock.errors import DefinitionError
from penstock.streams.flow.sites import Site

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""


def milliseconds(site: Site, name: str, duration: Duration, *, least: int = 1) -> int:
    """A duration in milliseconds; `DefinitionError` if it is none, or less than ``least``."""
    if isinstance(duration, bool) or not isinstance(duration, int | float | timedelta):
        raise site.error(
            DefinitionError, f"has {name}={duration!r}", hint="give seconds as a number, or a timedelta"
        )
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not math.isfinite(seconds) or abs(seconds * 1000 - round(seconds * 1000)) > 1e-6:
        raise site.error(
            DefinitionError, f"has {name}={duration!r}", hint="Spark counts in whole milliseconds"
        )
    found = round(seconds * 1000)
    if found < least:
        raise site.error(DefinitionError, f"has {name}={duration!r}", hint=f"at least {least} ms is needed")
    return found


def interval(milliseconds: int) -> str:
    """As Spark's functions take it."""
    return f"{milliseconds} milliseconds"

"""What people give to operators: expressions over columns, and lengths of time.

An expression is SQL text, a Column, or a function that gives one. A length of time is seconds or a timedelta,
in whole milliseconds, which is what Spark counts in.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.batch.pipeline.fingerprint.digests import code_digest
from penstock.errors import DefinitionError
from penstock.streams.operators.sites import Site

if TYPE_CHECKING:
    from pyspark.sql import Column

Expression: TypeAlias = "str | Column | Callable[[], Column]"
"""``"sum(price)"``, ``F.sum("price")`` or ``lambda: F.sum("price")``.

In a classic session, PySpark can make a Column only once the session is there: a file that is loaded before
uses text or a function.
"""
Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""


def is_expression(value: Any) -> bool:
    """Whether it stands for a column, and is not a function of a row."""
    if isinstance(value, str) or _is_column(value):
        return True
    return callable(value) and _takes_nothing(value)


def checked(site: Site, name: str, value: Any) -> Expression:
    if not is_expression(value):
        raise site.error(
            DefinitionError,
            f"has {name}={value!r}",
            hint='give SQL ("sum(price)"), a Column, or a function without parameters that gives one',
        )
    return value  # type: ignore[no-any-return]


def column(site: Site, value: Expression) -> Column:
    """The Column, in a session. Called where analysis errors are caught."""
    from pyspark.sql import functions as F

    if isinstance(value, str):
        return F.expr(value)
    made = value if _is_column(value) else value()  # type: ignore[operator]
    if not _is_column(made):
        raise site.error(DefinitionError, f"got {type(made).__name__} from its function, not a Column")
    return made  # type: ignore[return-value]


def described(value: Expression) -> str:
    """The same text for the same expression in every process."""
    if isinstance(value, str):
        return value
    return str(value) if _is_column(value) else code_digest(value)  # type: ignore[arg-type]


def _is_column(value: Any) -> bool:
    # By name: to define a stream, Spark need not be imported.
    return any(
        kind.__name__ == "Column" and kind.__module__.startswith("pyspark.sql")
        for kind in type(value).__mro__
    )


def _takes_nothing(function: Any) -> bool:
    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


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

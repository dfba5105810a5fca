"""Expressions over columns: SQL text, a Column, or a function that gives one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import DefinitionError
from penstock.pipeline.fingerprint import code_digest
from penstock.streams.flow.sites import Site

if TYPE_CHECKING:
    from pyspark.sql import Column

Expression: TypeAlias = "str | Column | Callable[[], Column]"
"""``"sum(price)"``, ``F.sum("price")`` or ``lambda: F.sum("price")``.

In a classic session, PySpark can make a Column only once the session is there: a file that is loaded before
uses text or a function.
"""


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

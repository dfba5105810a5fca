"""Functions of rows in the list of SELECT.

PostgreSQL runs them side by side: there are as many rows as the longest gives, and NULL where another has
ended. They run after everything but DISTINCT, ORDER BY and LIMIT, unless rows are grouped by what they give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.sql.rules.core import Call, Typed, quoted, refuse
from penstock.sql.rules.queries.rowsets import ARRAYS
from penstock.sql.rules.types import Type

if TYPE_CHECKING:
    from sqlglot import exp

_ALIAS = "`@rows`"


def element(call: Call) -> Typed:
    """What a function of rows gives in each row; its array is noted in the context."""
    rows = call.context.rows
    if rows is None:
        raise call.refuse("set-returning functions are not allowed here")
    if any(_ALIAS in arg.sql for arg in call.args):
        raise call.refuse("a set-returning function inside another is not supported")
    value = ARRAYS[call.name](call.context, call.args, call.node)
    rows.append(value)
    return Typed(_row(len(rows) - 1), value.type.element or Type("any"))


def _row(number: int) -> str:
    return f"{_ALIAS}.`r{number}`"


def grouped(rows: Sequence[Typed], groups: str, node: exp.Expr) -> bool:
    """Does GROUP BY name all functions of rows? Then each of their rows is one to be grouped."""
    named = [_row(number) in groups for number in range(len(rows))]
    if any(named) and not all(named):
        raise refuse("set-returning functions of which only some are grouped by are not supported", node)
    return all(named)


def view(arrays: Sequence[str]) -> str:
    """The rows of all functions, beside what stands before it in FROM."""
    names = ", ".join(f"r{i}" for i in range(len(arrays)))
    return f" LATERAL VIEW {zipped(arrays)} {_ALIAS} AS {names}"


def zipped(arrays: Sequence[str]) -> str:
    """A generator of the elements of several arrays, side by side."""
    if len(arrays) == 1:
        return f"explode({arrays[0]})"
    # NULL has no elements, and takes none from the others.
    return f"inline(arrays_zip({', '.join(f'coalesce({sql}, array())' for sql in arrays)}))"


def beside_groups(
    items: Sequence[tuple[str, Typed]], rows: Sequence[Typed], tail: str, node: exp.Expr
) -> str:
    """The text from the list of SELECT on, where rows are made of what aggregates and windows give."""
    inner, outer = [], []
    for i, (name, value) in enumerate(items):
        if value.sql.startswith(f"{_ALIAS}.`r") and value.sql.count("`") == 4:
            outer.append(f"{value.sql} AS {quoted(name)}")
        elif _ALIAS in value.sql:
            raise refuse("a set-returning function in an expression beside aggregates is not supported", node)
        else:
            inner.append(f"{value.sql} AS c{i}")
            outer.append(f"c{i} AS {quoted(name)}")
    inner += [f"{value.sql} AS a{i}" for i, value in enumerate(rows)]
    arrays = [f"a{i}" for i in range(len(rows))]
    return f"{', '.join(outer)} FROM (SELECT {', '.join(inner)}{tail}){view(arrays)}"

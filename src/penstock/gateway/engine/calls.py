"""Table functions of ours: ``SELECT * FROM checkpoint('run', 'stage')``.

To the rest of the engine such a call is a relation like any other, under a name that no table has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from penstock.dialect.analysis import Analysis
from penstock.errors import SqlError

OURS = frozenset({"checkpoint"})


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments, which must be there before the query is."""

    name: str
    arguments: tuple[str, ...]


def named(analysis: Analysis) -> Mapping[tuple[str, ...], Call]:
    """Put names in the place of calls of our functions; what each name stands for. Changes the tree."""
    if analysis.table_functions.isdisjoint(OURS):
        return {}
    calls: dict[tuple[str, ...], Call] = {}
    for table in list(analysis.tree.find_all(exp.Table)):
        call = _call(table)
        if call is None:
            continue
        name = f"{call.name}({', '.join(call.arguments)})"
        if not table.args.get("alias"):
            table.set("alias", exp.TableAlias(this=exp.to_identifier(call.name)))
        table.set("this", exp.to_identifier(name, quoted=True))
        calls[(name,)] = call
    return calls


def _call(table: exp.Table) -> Call | None:
    function = table.this
    if not isinstance(function, exp.Func):
        return None
    name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
    if name not in OURS:
        return None
    arguments = [node for node in function.expressions if isinstance(node, exp.Expression)]
    if not all(isinstance(node, exp.Literal) and node.is_string for node in arguments):
        raise SqlError(
            f"the arguments of {name} must be plain texts",
            sqlstate="0A000",
            hint=f"write them into the statement: {name}('run', 'stage')",
        )
    return Call(name, tuple(node.name for node in arguments))

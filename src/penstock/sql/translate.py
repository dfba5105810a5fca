"""PostgreSQL's SQL said in Spark's, with the meaning that PostgreSQL gives it.

Right, or refused: what has no rule here raises `SqlError` 0A000. The rules are in `penstock.sql.rules`,
by subject; they compile a tree of `penstock.sql.parse.postgres` bottom up, with the types that PostgreSQL
would find, since what an operator means hangs on them: ``7 / 2`` is 3, ``date - date`` a number of days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.rules import functions  # noqa: F401 - each of these brings its rules
from penstock.sql.rules.core import Context, NameScope, SparkRelation, name_of
from penstock.sql.rules.json import access, making  # noqa: F401
from penstock.sql.rules.queries import aggregates, membership, windows  # noqa: F401
from penstock.sql.rules.queries.queries import query
from penstock.sql.rules.text import patterns, quotes, strings  # noqa: F401
from penstock.sql.rules.time import dates, durations, fields  # noqa: F401
from penstock.sql.rules.time.zones import session_zone
from penstock.sql.rules.values import arrays, buckets, literals, maths  # noqa: F401

__all__ = ["SparkRelation", "respell", "translate"]

Lookup = Callable[[tuple[str, ...]], SparkRelation | None]


def translate(
    tree: exp.Expression,
    *,
    target: Lookup,
    parameters: Sequence[str] = (),
    values: Mapping[int, object] = {},
    session: Mapping[str, str] | None = None,
) -> str:
    """Spark SQL for a query in PostgreSQL's.

    ``target`` gives the relation of a name, ``parameters`` the Spark types of ``$1``, ``$2`` …, bound as
    ``:p1``, ``:p2`` …. Those of ``values`` stand in the text instead, which is good for these values only.
    ``session`` says what ``user`` and its like mean, and in which ``timezone`` the text will run. Columns of
    the result come in PostgreSQL's order; their names may differ.
    """
    context = Context(
        target=target,
        parameters=parameters,
        scope=NameScope(),
        queries=query,
        values=values,
        session=session,
    )
    try:
        with session_zone((session or {}).get("timezone")):
            return query(context, tree).sql
    except RecursionError:
        raise SqlError("the statement is nested too deeply", sqlstate="54001") from None


def respell(tree: exp.Expression, *, target: Lookup, parameters: Sequence[str] = ()) -> str:
    """Spark SQL as it is, with relations named as Spark knows them, and ``$1`` as ``:p1``."""
    tree = tree.copy()
    _rename(tree, target, frozenset())
    for node in list(tree.find_all(exp.Parameter)):
        number = str(node.name)
        if number.isdigit():
            if not 1 <= int(number) <= len(parameters):
                raise SqlError(f"there is no parameter ${number}", sqlstate="42P02")
            spark = exp.DataType.build(parameters[int(number) - 1], dialect="spark")
            node.replace(exp.Cast(this=exp.Placeholder(this=f"p{number}"), to=spark))
    return tree.sql(dialect="spark")


def _rename(node: exp.Expression, target: Lookup, hidden: frozenset[str]) -> None:
    """Give tables their names; names of WITH hide those of tables, where they can be seen."""
    clause = node.args.get("with_")
    if clause is not None:
        for cte in clause.expressions:
            name = name_of(cte.args["alias"].this).lower()
            inner = hidden | {name} if clause.args.get("recursive") else hidden
            _rename(cte.this, target, inner)
            hidden |= {name}
    for key, value in list(node.args.items()):
        if key == "with_":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, exp.Table) and isinstance(child.this, exp.Identifier):
                _name(child, target, hidden)
            if isinstance(child, exp.Expression):
                _rename(child, target, hidden)


def _name(table: exp.Table, target: Lookup, hidden: frozenset[str]) -> None:
    path = tuple(str(part.name) for part in table.parts)
    if len(path) == 1 and path[0].lower() in hidden:
        return
    found = target(path)
    if found is None:
        raise SqlError(
            f'relation "{".".join(path)}" does not exist', sqlstate="42P01", position=_start(table)
        )
    if not table.args.get("alias"):
        table.set("alias", exp.TableAlias(this=exp.to_identifier(path[-1], quoted=True)))
    spelled = exp.to_table(found.name, dialect="spark")
    for part in ("this", "db", "catalog"):
        table.set(part, spelled.args.get(part))


def _start(node: exp.Expression) -> int | None:
    for part in node.walk():
        if isinstance(part.meta.get("start"), int):
            return int(part.meta["start"])
    return None

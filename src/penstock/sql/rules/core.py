"""The frame of a translation: what is known while a piece of a statement becomes Spark's SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from zlib import crc32

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.parse.interval_input import Parts
from penstock.sql.rules.types import ANY, UNKNOWN, Type, of_spark


@dataclass(frozen=True, slots=True)
class SparkRelation:
    """A relation: ``name`` as Spark SQL spells it, and its columns with their Spark types, in order."""

    name: str
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression in Spark's SQL. ``sql`` can stand as an operand as it is.

    ``value`` is what it is where that is known: the text of a literal, a date, the parts of an interval.
    """

    sql: str
    type: Type
    value: object = None


class Elements(tuple[object, ...]):
    """The elements of a long array that is a parameter: None, numbers, and texts for all else."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column that a statement can name. ``sql`` is what Spark is told.

    ``literal`` is the text of a column of a query that is nothing but a literal.
    """

    name: str
    sql: str
    type: Type
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class FromItem:
    """One relation of FROM. ``fields`` None means that its columns are not known."""

    name: str
    fields: tuple[NamedColumn, ...] | None


@dataclass(frozen=True, slots=True)
class TranslatedQuery:
    """A query in Spark's SQL, and the columns that it gives."""

    sql: str
    fields: tuple[NamedColumn, ...] | None


@dataclass(frozen=True, slots=True)
class NameScope:
    """What names mean here: the relations of FROM, columns that USING merged, and the query around."""

    sources: tuple[FromItem, ...] = ()
    merged: tuple[NamedColumn, ...] = ()
    outer: NameScope | None = None
    ctes: Mapping[str, TranslatedQuery] = field(default_factory=dict)
    windows: Mapping[str, exp.Window] = field(default_factory=dict)


Rule = Callable[["Context", exp.Expr], Typed]
Function = Callable[["Call"], Typed]
RULES: dict[type[exp.Expr], Rule] = {}
FUNCTIONS: dict[str, Function] = {}
AGGREGATES: dict[str, Callable[[AggregateCall], Typed]] = {}
F = TypeVar("F", bound=Callable[..., object])


def rule(*kinds: type[exp.Expr]) -> Callable[[F], F]:
    """Mark how nodes of these kinds are said."""

    def register(function: F) -> F:
        for kind in kinds:
            RULES[kind] = function  # type: ignore[assignment]
        return function

    return register


def function(*names: str) -> Callable[[F], F]:
    """Mark how these functions are said."""

    def register(body: F) -> F:
        for name in names:
            FUNCTIONS[name] = body  # type: ignore[assignment]
        return body

    return register


def aggregate(*names: str) -> Callable[[F], F]:
    """Mark how these aggregates are said."""

    def register(body: F) -> F:
        for name in names:
            AGGREGATES[name] = body  # type: ignore[assignment]
        return body

    return register


@dataclass(frozen=True, slots=True)
class Context:
    """A place in a statement."""

    target: Callable[[tuple[str, ...]], SparkRelation | None]
    parameters: Sequence[str]
    scope: NameScope
    queries: Callable[[Context, exp.Expr], TranslatedQuery]
    rows: list[Typed] | None = None
    """Where functions of rows may stand (in the list of SELECT): the arrays whose elements they give."""
    values: Mapping[int, object] = field(default_factory=dict)
    """Values of parameters that stand in the text itself, by number: some places want a constant."""
    session: Mapping[str, str] | None = None
    """What ``user``, ``current_catalog`` and ``current_schema`` mean; None in a view."""

    def inside(self, scope: NameScope) -> Context:
        return replace(self, scope=scope)

    def query(self, node: exp.Expr) -> TranslatedQuery:
        """A query inside this one; it may name what is in scope here."""
        inner = NameScope(outer=self.scope, ctes=self.scope.ctes)
        return self.queries(replace(self, scope=inner, rows=None), node)

    def expr(self, node: exp.Expr | None) -> Typed:
        if node is None:
            raise SqlError("an expression is missing", sqlstate="42601")
        found = RULES.get(type(node))
        if found is None:
            raise refuse(f"{written(node)} is not supported", node)
        return found(self, node)

    def exprs(self, nodes: Sequence[exp.Expr]) -> list[Typed]:
        return [self.expr(node) for node in nodes]

    def parameter(self, number: int, node: exp.Expr) -> Typed:
        if not 1 <= number <= len(self.parameters):
            raise SqlError(f"there is no parameter ${number}", sqlstate="42P02", position=position(node))
        spark = self.parameters[number - 1]
        kind = of_spark(spark)
        bound = Typed(f"CAST(:p{number} AS {spark})", UNKNOWN if kind == ANY else kind)
        return given(bound, spark, self.values[number]) if number in self.values else bound


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments."""

    context: Context
    name: str
    args: list[Typed]
    node: exp.Expr

    def expect(self, *counts: int) -> None:
        if len(self.args) not in counts:
            raise refuse(
                f"{self.name} with {len(self.args)} arguments is not supported", self.node, sqlstate="42883"
            )

    def refuse(self, what: str) -> SqlError:
        return refuse(f"{self.name}: {what}", self.node)


@dataclass(frozen=True, slots=True)
class AggregateCall(Call):
    """An aggregate. ``wrap`` puts DISTINCT, FILTER and OVER around a call of Spark's."""

    distinct: bool = False
    order: tuple[tuple[Typed, str], ...] = ()
    """The keys of ORDER BY, and how each sorts: ``DESC NULLS FIRST``."""
    filter: str | None = None
    over: str | None = None

    def wrap(self, name: str, arguments: str, *, distinct: bool | None = None, within: str = "") -> str:
        mark = "DISTINCT " if (self.distinct if distinct is None else distinct) else ""
        text = f"{name}({mark}{arguments}){within}"
        if self.filter:
            text += f" FILTER (WHERE {self.filter})"
        return f"{text} OVER {self.over}" if self.over else text


_SHOWN = 60


def written(node: exp.Expr) -> str:
    """A piece of a statement in the words of who wrote it."""
    try:
        words = " ".join(node.sql(dialect="postgres", comments=False).split())
    except Exception:
        words = node.key.upper()
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"


def given(bound: Typed, spark: str, value: object) -> Typed:
    """A parameter whose value is known."""
    if isinstance(value, str) and bound.type.textual:
        return Typed(text(value), bound.type, value)
    if isinstance(value, int) and not isinstance(value, bool) and bound.type.integer:
        return Typed(f"CAST({value} AS {spark})", bound.type, value)
    if isinstance(value, Parts) and bound.type.name == "interval":
        from penstock.sql.rules.time.intervals import constant

        return constant(value)
    if isinstance(value, list | Elements) and bound.type.name == "array":
        return Typed(bound.sql, bound.type, value)
    return bound


def position(node: exp.Expr | None) -> int | None:
    """Where a node begins in the statement, if the parser kept it."""
    if node is None:
        return None
    for part in node.walk():
        start = part.meta.get("start")
        if isinstance(start, int):
            return start
    return None


def refuse(
    what: str, node: exp.Expr | None = None, *, hint: str | None = None, sqlstate: str = "0A000"
) -> SqlError:
    """That something is not translated, to raise: better than an answer that is not PostgreSQL's."""
    hint = hint or "Write it in another way, or in Spark's SQL after SET penstock.sql = 'spark'."
    return SqlError(what, sqlstate=sqlstate, position=position(node), hint=hint)


def name_of(identifier: exp.Expr | str | None) -> str:
    """An identifier as PostgreSQL reads it: folded to lower case unless it is quoted."""
    if isinstance(identifier, exp.Identifier):
        return str(identifier.this) if identifier.args.get("quoted") else str(identifier.this).lower()
    return str(identifier or "")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def alias_of(name: str) -> str:
    """A relation in Spark, by a name that no column has: Spark may read ``a.b`` as a field of ``a``."""
    return quoted(f"@{name}")


def text(value: str) -> str:
    """A string literal of Spark's, in which a backslash is an escape."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def at_least(least: int, sql: str) -> str:
    """A number, or ``least`` if it is smaller; NULL for NULL, which Spark's greatest passes over."""
    return f"IF({sql} < {least}, {least}, {sql})"


def between(low: object, sql: str, high: object) -> str:
    """``sql BETWEEN low AND high``.

    Not in these words, nor with Spark's ``nullif``: Spark computes what they test in a step of its own, and
    fails where that would come below an ``explode`` that reads columns of the query around.
    """
    return f"({sql} >= {low} AND {sql} <= {high})"


_NAME = re.compile(r"(?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*")


def once(value: Typed, body: Callable[[str], str]) -> str:
    """``body`` of a value that is computed once, though it is named often."""
    simple = _NAME.fullmatch(value.sql) is not None
    # Spark has no subqueries inside a lambda.
    if simple or "SELECT " in value.sql:
        return body(value.sql)
    name = f"v{crc32(value.sql.encode())}"
    return f"transform(array({value.sql}), {name} -> {body(name)})[0]"

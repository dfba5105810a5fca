"""What the engine remembers of a statement that it has understood.

A call of one of our table functions, ``SELECT * FROM checkpoint('run', 'stage')``, is a relation like any
other here, under a name that no table has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from penstock.errors import SqlError
from penstock.server.base import Prepared
from penstock.server.engine.faults import UNREADABLE
from penstock.server.engine.planning.arguments import arguments, check_spark, constants, kinds_of
from penstock.sql.statements.analysis import Analysis
from penstock.sql.statements.classify import CreateSchema, CreateTable, CreateView, Drop, Explain, Rename
from penstock.sql.translate import SparkRelation, respell, translate
from penstock.types import postgres as pg
from penstock.types.postgres import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.server.relations import Relation
    from penstock.sql.statements.analysis import Analysis

OUR_FUNCTIONS = frozenset({"checkpoint"})


@dataclass(frozen=True, slots=True)
class TableCall:
    """A call of a table function of ours, with its arguments, which must be there before the query is."""

    name: str
    arguments: tuple[str, ...]


def named_calls(analysis: Analysis) -> Mapping[tuple[str, ...], TableCall]:
    """Put names in the place of calls of our functions; what each name stands for. Changes the tree."""
    if analysis.table_functions.isdisjoint(OUR_FUNCTIONS):
        return {}
    calls: dict[tuple[str, ...], TableCall] = {}
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


def _call(table: exp.Table) -> TableCall | None:
    function = table.this
    if not isinstance(function, exp.Func):
        return None
    name = (function.name if isinstance(function, exp.Anonymous) else function.sql_name()).lower()
    if name not in OUR_FUNCTIONS:
        return None
    arguments = [node for node in function.expressions if isinstance(node, exp.Expression)]
    if not all(isinstance(node, exp.Literal) and node.is_string for node in arguments):
        raise SqlError(
            f"the arguments of {name} must be plain texts",
            sqlstate="0A000",
            hint=f"write them into the statement: {name}('run', 'stage')",
        )
    return TableCall(name, tuple(node.name for node in arguments))


_FEW = 10_000
"""An outermost LIMIT of at most so many rows makes a small result."""
_TEXTS = 4
_LITTLE = 16 << 20
"""A result of at most so many bytes is taken to be small the next time as well."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """A query for Spark. ``columns`` is what was described."""

    sql: str
    analysis: Analysis
    relations: Mapping[Path, Relation]
    calls: Mapping[Path, TableCall]
    """Those of the relations that are calls of functions."""
    parameters: tuple[int, ...]
    columns: tuple[Column, ...] = ()
    offset: int = 0
    """Where ``sql`` begins in the client's statement."""
    texts: dict[object, str] = field(default_factory=dict, repr=False)
    """The translation for each way in which the relations were named and shaped."""
    session: Mapping[str, str] | None = None
    """What ``user`` and its like mean."""
    literal: list[bool] = field(default_factory=list, repr=False)
    """Not empty where values of parameters must stand in the text."""
    sizes: list[int] = field(default_factory=list, repr=False)
    """Bytes of the last result, if there was one."""

    @property
    def small(self) -> bool:
        """Whether the result is small: by what the statement says, or because it was small the last time."""
        limit = self.analysis.limit
        stated = self.analysis.aggregate or (limit is not None and limit <= _FEW)
        return stated or any(size <= _LITTLE for size in self.sizes)

    def gave(self, size: int) -> None:
        """Remember how large the result was. With other values of parameters it says nothing."""
        if not self.parameters:
            self.sizes[:] = [size]

    def placed(self, error: SqlError) -> SqlError:
        """An error in the query, with its place in the client's statement."""
        if self.offset and error.position is not None:
            error.position = max(0, error.position + self.offset)
        return error

    def text(self, spark: SparkSession, query: str, values: Sequence[object] = ()) -> str:
        """The statement in Spark SQL, with its relations bound for ``query``."""
        names = {path: relation.bind(spark, query) for path, relation in self.relations.items()}
        shapes = (tuple(relation.spark_columns.items()) for relation in self.relations.values())
        kinds = kinds_of(self.parameters, values)
        key = (*names.values(), *shapes, *kinds)
        try:
            return self._text(key, names, kinds, constants(values, every=bool(self.literal)))
        except SqlError as error:
            if error.sqlstate != "0A000" or self.literal or not constants(values, every=True):
                raise
            # A place that wants a constant: the values are known by now.
            text = self._text(key, names, kinds, constants(values, every=True))
            self.literal.append(True)
            return text

    def _text(
        self,
        key: tuple[object, ...],
        names: Mapping[Path, str],
        kinds: Sequence[str],
        fixed: Mapping[int, object],
    ) -> str:
        whole = (*key, (self.session or {}).get("timezone"), repr(fixed))
        text = self.texts.get(whole)
        if text is None:
            # Temporary views have another name each time: their texts are of no further use.
            if len(self.texts) >= _TEXTS:
                self.texts.clear()
            text = self.texts[whole] = self._translated(names, kinds, fixed)
        return text

    def _translated(
        self, names: Mapping[Path, str], kinds: Sequence[str], fixed: Mapping[int, object]
    ) -> str:
        def target(path: Path) -> SparkRelation | None:
            # Spark's own dialect does not tell upper case from lower.
            known = path if path in names else tuple(part.lower() for part in path)
            relation = self.relations.get(known)
            return None if relation is None else SparkRelation(names[known], relation.spark_columns)

        tree = self.analysis.tree.copy()
        if self.analysis.dialect != "postgres":
            check_spark(fixed)
            return respell(tree, target=target, parameters=kinds)
        return translate(tree, target=target, parameters=kinds, values=fixed, session=self.session)

    def frame(self, spark: SparkSession, query: str, values: Sequence[object] = ()) -> DataFrame:
        """The query, analysed by Spark but not run."""
        return sql(spark, self.text(spark, query, values), values, len(self.parameters))

    def in_zone(self, timezone: str) -> SparkPlan:
        """The plan for a session of this ``timezone``, which may have changed since it was prepared."""
        if self.session is None or self.session.get("timezone") == timezone:
            return self
        return replace(self, session={**self.session, "timezone": timezone})

    def failed(self, error: SqlError) -> None:
        """Have tables looked at whose files it may be that could not be read."""
        if error.sqlstate in UNREADABLE:
            for relation in self.relations.values():
                with suppress(Exception):
                    relation.doubt()

    def release(self, spark: SparkSession, query: str) -> None:
        for relation in self.relations.values():
            relation.release(spark, query)


def sql(spark: SparkSession, text: str, values: Sequence[object], count: int) -> DataFrame:
    """A text of our own making, with the values of its parameters."""
    text, given = arguments(text, values, count)
    return spark.sql(text, args=given) if given else spark.sql(text)


@dataclass(frozen=True, slots=True)
class ShadowPlan:
    """A query that the shadow catalog answers."""

    sql: str
    parameters: tuple[int, ...]
    columns: tuple[Column, ...] | None
    exact: bool = False
    """Whether ``columns`` has exactly the types that batches must have."""


@dataclass(frozen=True, slots=True)
class ExplainPlan:
    """How Spark would run a query, or has run it."""

    command: Explain
    query: SparkPlan


@dataclass(frozen=True, slots=True)
class SystemPlan:
    """A query of system tables alone: the shadow answers it, with their rows."""

    sql: str
    parameters: tuple[int, ...]
    columns: tuple[Column, ...] | None
    tables: Mapping[Path, Relation]
    """What it reads, but for the catalog's own."""
    spark: SparkPlan | ExplainPlan | None
    """What to do where the shadow cannot; None for what only PostgreSQL knows."""
    exact: bool = False


@dataclass(frozen=True, slots=True)
class CatalogPlan:
    """A change of the catalog."""

    command: CreateView | CreateTable | CreateSchema | Drop | Rename
    columns: tuple[str, ...] = ()
    """Names that the columns of a view's query have."""


Plan = SparkPlan | ShadowPlan | SystemPlan | ExplainPlan | CatalogPlan


Described = Callable[[SparkPlan], tuple[Column, ...]]
"""The columns as Spark's analysis finds them."""


def exact_types(prepared: Prepared, described: Described) -> Prepared:
    """The same with the precision of numbers that PostgreSQL describes without one, as Spark has it."""
    plan = prepared.plan
    if isinstance(plan, ShadowPlan):
        return replace(prepared, plan=replace(plan, exact=True))
    if isinstance(plan, SparkPlan):
        columns = _columns(plan, described)
        return replace(prepared, columns=columns, plan=replace(plan, columns=columns))
    if isinstance(plan, SystemPlan) and isinstance(plan.spark, SparkPlan):
        try:
            columns = _columns(plan.spark, described)
        except SqlError:
            # Only PostgreSQL can do it.
            columns = plan.spark.columns
        other = replace(plan.spark, columns=columns)
        return replace(
            prepared, columns=columns, plan=replace(plan, columns=columns, spark=other, exact=True)
        )
    return prepared


def _columns(plan: SparkPlan, described: Described) -> tuple[Column, ...]:
    if not any(map(_open, plan.columns)):
        return plan.columns
    pairs = zip(plan.columns, described(plan), strict=True)
    return tuple(
        replace(column, type=spark.type) if _open(column) and pa.types.is_decimal(spark.type) else column
        for column, spark in pairs
    )


def _open(column: Column) -> bool:
    return column.oid == pg.NUMERIC and column.typmod == -1

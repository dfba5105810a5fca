"""What the engine remembers of a statement that it has understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.dialect.statements import CreateSchema, CreateTable, CreateView, Drop, Explain, Rename
from penstock.dialect.translate import Target, respell, translate
from penstock.errors import SqlError
from penstock.gateway.base import Column
from penstock.gateway.engine.arguments import arguments, kinds_of
from penstock.gateway.engine.calls import Call
from penstock.gateway.engine.faults import UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.dialect.analysis import Analysis
    from penstock.gateway.tables import Relation

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
    calls: Mapping[Path, Call]
    """Those of the relations that are calls of functions."""
    parameters: tuple[int, ...]
    columns: tuple[Column, ...] = ()
    offset: int = 0
    """Where ``sql`` begins in the client's statement."""
    texts: dict[object, str] = field(default_factory=dict, repr=False)
    """The translation for each way in which the relations were named and shaped."""
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
        text = self.texts.get(key)
        if text is None:
            # Temporary views have another name each time: their texts are of no further use.
            if len(self.texts) >= _TEXTS:
                self.texts.clear()
            text = self.texts[key] = self._translated(names, kinds)
        return text

    def _translated(self, names: Mapping[Path, str], kinds: Sequence[str]) -> str:
        def target(path: Path) -> Target | None:
            # Spark's own dialect does not tell upper case from lower.
            known = path if path in names else tuple(part.lower() for part in path)
            relation = self.relations.get(known)
            return None if relation is None else Target(names[known], relation.spark_columns)

        change = translate if self.analysis.dialect == "postgres" else respell
        return change(self.analysis.tree.copy(), target=target, parameters=kinds)

    def frame(self, spark: SparkSession, query: str, values: Sequence[object] = ()) -> DataFrame:
        """The query, analysed by Spark but not run."""
        return sql(spark, self.text(spark, query, values), values, len(self.parameters))

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
    return spark.sql(text, args=arguments(values, count)) if count else spark.sql(text)


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

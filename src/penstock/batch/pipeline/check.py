"""Checks that need Spark's analyser: what does a transform's plan really touch?

The function is called with DataFrames that hold just the fields it declared to read, and no rows. A
field that it did not declare cannot be resolved there, which is an undeclared read. Every column also
carries its name as metadata, which Spark passes on for a column that is handed through and drops
for one that is computed: a changed column that was not declared is an undeclared write. The same
plan shows which rows the transform brings together.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.batch.pipeline.fingerprint.modules import of_project
from penstock.batch.pipeline.stages import Bound
from penstock.errors import (
    DefinitionError,
    PenstockError,
    TypeMismatch,
    UndeclaredRead,
    UndeclaredWrite,
    UnknownField,
)
from penstock.spark.plans.analysed import PlanUnreadable, leaf, needs_rows, read
from penstock.spark.plans.local_analysis import in_local_session
from penstock.spark.plans.plan_reader import TABLE
from penstock.spark.plans.plan_tree import PlanNode
from penstock.spark.session import empty_frame, is_connect
from penstock.types.spark import is_same, spark_type, widens
from penstock.types.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from penstock.batch.pipeline.pipeline import Pipeline

# Stands for all fields that the transform did not declare: it has to come out as it went in.
OTHERS = "_other_fields"
_TAG = "penstock.field"


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A transform whose plan could not be had without rows."""

    transform: str
    reason: str


class ResultPlan(NamedTuple):
    """The plan of a DataFrame that a transform returns, and the names of its columns.

    ``widened`` are those that get a wider type than the plan gives them: the same numbers may be other bits.
    """

    node: PlanNode
    columns: tuple[str, ...]
    widened: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CheckedTransform:
    """A transform that does what it declares, as far as that can be told without rows.

    ``reason`` says why its plan could not be had. ``plans`` has the plan of each table that it returns;
    without them, ``unread`` says why.
    """

    reason: str | None = None
    plans: Mapping[str, ResultPlan] | None = None
    unread: str = ""

    @property
    def may_name_views(self) -> bool:
        """Whether it may use a view that it makes: its name is known to all claims of a Spark session."""
        if self.plans is None:
            return True
        return any(node.name == "View" for plan in self.plans.values() for node in plan.node.walk())


@dataclass(frozen=True, slots=True)
class CheckedPipeline:
    """All transforms of a pipeline, by name."""

    transforms: Mapping[str, CheckedTransform]

    @property
    def unchecked(self) -> list[Unchecked]:
        """Those that are checked when they first run."""
        return [Unchecked(n, c.reason) for n, c in self.transforms.items() if c.reason is not None]

    @property
    def checked(self) -> list[str]:
        return [name for name, each in self.transforms.items() if each.reason is None]

    @property
    def without_views(self) -> list[str]:
        """Those whose functions may be called by several claims at once."""
        return [name for name, each in self.transforms.items() if not each.may_name_views]


def check_pipeline(
    spark: SparkSession, pipeline: Pipeline, resources: Sequence[Mapping[str, Any]]
) -> CheckedPipeline:
    """Check every transform whose plan can be had without rows. Raises what `check_transform` raises."""
    if is_connect(spark):
        with suppress(PlanUnreadable):
            return in_local_session(partial(_check_all, pipeline=pipeline, resources=resources))
    return _check_all(spark, pipeline, resources)


def _check_all(
    spark: SparkSession, pipeline: Pipeline, resources: Sequence[Mapping[str, Any]]
) -> CheckedPipeline:
    return CheckedPipeline(
        {
            bound.name: check_transform(spark, pipeline.tables, bound, resources[stage.index])
            for stage in pipeline.stages
            for bound in stage.transforms
        }
    )


def check_transform(
    spark: SparkSession,
    tables: Mapping[str, type[Table]],
    bound: Bound,
    resources: Mapping[str, Any],
    rows: Mapping[str, DataFrame] | None = None,
) -> CheckedTransform:
    """Raise a `DefinitionError` if the plan of a DataFrame transform does not fit its declaration.

    The plan cannot be had of an Arrow function, without a resource that only a dataset provides, or of a
    function that needs ``rows``. Such a one is checked when it first runs.
    """
    wanted = {r.name for r in bound.reads_resources}
    if missing := sorted(wanted - resources.keys()):
        return CheckedTransform(
            f"it needs resource {', '.join(missing)}, which only a dataset factory provides"
        )
    if bound.transform.form != "frame":
        return CheckedTransform("an Arrow function is checked with its first batch")
    if bound.writes_resources:
        return CheckedTransform()
    from pyspark.sql import DataFrame

    arguments: dict[str, Any] = {
        t: _empty(spark, tables[t], bound) if rows is None else _declared_only(rows[t], bound, t)
        for t in bound.tables
    }
    arguments |= {name: resources[name] for name in wanted}
    try:
        with _quiet():
            result = results(bound, bound.transform.function(**arguments))
        for table, frame in result.items():
            check_columns(bound, tables[table], frame, _reads(bound, table) | {OTHERS})
            _check_tags(bound, table, frame)
    except PenstockError:
        raise
    except Exception as error:
        if rows is None and needs_rows(error):
            return CheckedTransform("it looks at rows while it is planned")
        if explained := _explain(bound, tables, error) or _mistake(bound, error):
            raise explained from error
        return CheckedTransform(f"without rows it raised {_told(error)}")
    known = [value for value in arguments.values() if isinstance(value, DataFrame)]
    checked = _read(tables, result, known)
    for plan in (checked.plans or {}).values():
        _check_hidden_keys(bound, plan.node)
    return checked


def _read(
    tables: Mapping[str, type[Table]], result: Mapping[str, DataFrame], known: Sequence[DataFrame]
) -> CheckedTransform:
    try:
        found = {
            table: ResultPlan(read(frame, known), tuple(frame.columns), _widened(tables[table], frame))
            for table, frame in result.items()
        }
        return CheckedTransform(plans=found)
    except PlanUnreadable as error:
        return CheckedTransform(unread=str(error))


def _widened(table: type[Table], frame: DataFrame) -> frozenset[str]:
    fields = table.__fields__
    return frozenset(
        c.name for c in frame.schema if c.name in fields and not is_same(c.dataType, fields[c.name].type)
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PySpark from printing an analysis error: what it means is said by us."""
    logger = logging.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def results(bound: Bound, returned: Any) -> dict[str, DataFrame]:
    """What a DataFrame transform returned, by table."""
    from pyspark.sql import DataFrame

    tables = bound.changes
    if isinstance(returned, DataFrame) and len(tables) == 1:
        return {next(iter(tables)): returned}
    if (
        isinstance(returned, Mapping)
        and returned.keys() == tables
        and all(isinstance(frame, DataFrame) for frame in returned.values())
    ):
        return dict(returned)
    kind = f"a mapping of {', '.join(returned)}" if isinstance(returned, Mapping) else type(returned).__name__
    expected = (
        "a DataFrame" if len(tables) == 1 else f"a dictionary of DataFrames for {', '.join(sorted(tables))}"
    )
    raise bound.transform.error(DefinitionError, f"returned {kind}, not {expected}")


def check_columns(bound: Bound, table: type[Table], frame: DataFrame, given: Iterable[str]) -> None:
    """Exactly the columns that went in plus those declared as written, of fitting types."""
    name = table.__table_name__
    created = name in bound.creates
    written = {f.name for f in bound.writes if f.table == name}
    expected = written if created else set(given) | written
    have = set(frame.columns)
    if extra := sorted(have - expected):
        undeclared = [c for c in extra if c in table.__fields__]
        kind = UndeclaredWrite if undeclared or not created else UnknownField
        raise bound.transform.error(
            kind,
            f"returns {name} with {', '.join(extra)}, which it does not declare in writes",
            hint=f"add {', '.join(f'{_class(table)}.{c}' for c in undeclared)} to writes"
            if undeclared
            else "drop the column, or add it to the table and to writes",
        )
    if twice := sorted({c for c in frame.columns if frame.columns.count(c) > 1}):
        raise bound.transform.error(
            DefinitionError,
            f"returns {name} with two columns {twice[0]}",
            hint="join by name, or drop the other table's column before the join",
        )
    if OTHERS in expected - have:
        raise bound.transform.error(
            UndeclaredWrite,
            f"removes the fields of {name} that it does not declare",
            hint="add columns with withColumn or withColumns instead of select, or use select('*', …)",
        )
    if missing := sorted(expected - have):
        lost = [c for c in missing if c not in written]
        raise bound.transform.error(
            UndeclaredWrite if lost else UnknownField,
            f"removes {', '.join(f'{name}.{c}' for c in lost)}"
            if lost
            else f"declares to write {', '.join(f'{name}.{c}' for c in missing)}, but does not",
        )
    for column in frame.schema:
        if column.name not in written:
            continue
        declared = table.__fields__[column.name].type
        if not widens(column.dataType, declared):
            want = spark_type(declared)
            raise bound.transform.error(
                TypeMismatch,
                f"makes {name}.{column.name} a {column.dataType.simpleString()}, "
                f"but it is declared as {want.simpleString()}",
                hint=_mend(column.dataType, want),
            )


def _mend(have: DataType, want: DataType) -> str:
    if have.typeName() == "timestamp_ntz" and want.typeName() == "timestamp":
        return (
            'it has no zone: say where it is local with F.to_utc_timestamp(column, "Europe/Berlin"), '
            "or declare it as Annotated[datetime, Timestamp(naive=True)]"
        )
    return f'cast it: .cast("{want.simpleString()}"), or change the declaration'


def _empty(spark: SparkSession, table: type[Table], bound: Bound) -> DataFrame:
    """What `_declared_only` makes of the whole table, in one step, and without any rows to look at."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    name = table.__table_name__
    known = {f.name: f for f in (*table.spark_schema(), StructField(OTHERS, BooleanType()))}
    fields = [known[n] for n in _given(bound, name, table.__fields__)]
    for field in fields:
        field.metadata = {_TAG: field.name}
    schema = StructType(fields)
    # Plans of Spark Connect cannot be read: what is checked there are names and types.
    return (empty_frame(spark, schema) if is_connect(spark) else leaf(spark, schema, name)).alias(name)


def _declared_only(frame: DataFrame, bound: Bound, table: str) -> DataFrame:
    """The rows with the fields that the transform is given, tagged."""
    from pyspark.sql import functions as F

    others = F.lit(None).cast("boolean")
    columns = [
        (others if name == OTHERS else F.col(name)).alias(name, metadata={_TAG: name})
        for name in _given(bound, table, frame.columns)
    ]
    # Filters and sorts find columns of an earlier projection, but not through an alias.
    return frame.select(*columns).alias(table)


def _given(bound: Bound, table: str, fields: Iterable[str]) -> list[str]:
    """The fields that the transform reads, and one that stands for all others if it may."""
    reads = [name for name in fields if name in _reads(bound, table)]
    return [*reads, OTHERS] if table in bound.changes or not reads else reads


def _reads(bound: Bound, table: str) -> set[str]:
    return {f.name for f in bound.reads if f.table == table}


def _check_tags(bound: Bound, table: str, frame: DataFrame) -> None:
    if table in bound.creates:
        return
    written = {f.name for f in bound.writes if f.table == table}
    for column in frame.schema:
        same = column.metadata.get(_TAG) == column.name and column.metadata.get(TABLE, table) == table
        if column.name not in written and not same:
            raise bound.transform.error(
                UndeclaredWrite,
                f"changes {table}.{column.name}, which it only declares to read",
                hint=f"add {column.name} to writes, or write to a field of its own",
            )


def _check_hidden_keys(bound: Bound, plan: PlanNode) -> None:
    """Raise if rows are compared by fields that the transform did not declare, as `distinct` does."""
    nodes = list(plan.walk())
    # A column has an id of its own wherever it gets a new name. Children come after their parents.
    hidden = {i: n.table for n in nodes for i, name in n.fields.items() if name == OTHERS}
    for node in reversed(nodes):
        hidden |= {out: hidden[i] for out, i in node.same.items() if i in hidden}
    for node in nodes:
        for column in (*node.keys, *(i for pair in node.pairs for i in pair)):
            if (table := hidden.get(column, "")) and table not in bound.complete:
                raise bound.transform.error(
                    UndeclaredRead,
                    f"compares all fields of {table} in {node.name}, and does not declare to read them all",
                    hint=f"add {table} as a whole to reads, or name fields: dropDuplicates([…])",
                )


def _explain(bound: Bound, tables: Mapping[str, type[Table]], error: Exception) -> PenstockError | None:
    from pyspark.errors import AnalysisException, PySparkAttributeError

    if isinstance(error, AnalysisException | PySparkAttributeError):
        condition = error.getCondition() or ""
        parameters = error.getMessageParameters() or {}
        named = parameters.get("objectName") or parameters.get("attr_name") or ""
        parts = named.replace("`", "").split(".")
        # `alias.field` or `field.part_of_it`: the first of its words that is a field is meant.
        name = next((p for p in parts if any(p in tables[t].__fields__ for t in bound.tables)), parts[-1])
        owners = sorted(t for t in bound.tables if name in tables[t].__fields__)
        if condition.startswith("UNRESOLVED_COLUMN") or condition == "ATTRIBUTE_NOT_SUPPORTED":
            if owners:
                return bound.transform.error(
                    UndeclaredRead,
                    f"reads {owners[0]}.{name}, which it does not declare",
                    hint=f"add {_class(tables[owners[0]])}.{name} to reads",
                )
            fields = sorted(f"{f.table}.{f.name}" for f in bound.reads)
            return bound.transform.error(
                UnknownField, f"uses {name!r}, which no table has", hint=f"it reads: {', '.join(fields)}"
            )
        if isinstance(error, AnalysisException):
            return bound.transform.error(DefinitionError, f"cannot be analysed: {str(error).splitlines()[0]}")
    return None


def _mistake(bound: Bound, error: Exception) -> DefinitionError | None:
    """An error that no rows can mend: a name that does not exist, a call that cannot be made."""
    from pyspark.errors import PySparkTypeError

    frames = traceback.extract_tb(error.__traceback__)
    certain = isinstance(error, NameError | ImportError | SyntaxError)
    # Without rows, `first()` is None: what fails with that may work with rows.
    if isinstance(error, AttributeError | TypeError) and "NoneType" not in str(error):
        certain = isinstance(error, PySparkTypeError) or _in_project(error)
    if not certain:
        return None
    ours = bound.transform.location.rpartition(":")[0]
    line = next((f"line {f.lineno}: " for f in reversed(frames) if f.filename == ours), "")
    return bound.transform.error(DefinitionError, f"cannot be planned: {line}{_told(error)}")


def _in_project(error: Exception) -> bool:
    """Whether the error was raised by a line of the user's own, not by one of an installed package."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and of_project(last.tb_frame.f_globals.get("__name__", ""))


def _told(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _class(table: type[Table]) -> str:
    return table.__name__

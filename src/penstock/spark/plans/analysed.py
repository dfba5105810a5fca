"""Analysed plans: the only place that leaves PySpark's public API to see what a DataFrame is made of.

A transform is called with DataFrames that stand for tables (`leaf`). What Spark's analyser makes of it is
read as a tree of values (`read`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from penstock.spark.plans.plan_json import Unexpected, grow
from penstock.spark.plans.plan_reader import FIELD, STANDS_FOR_ROWS, TABLE, PlanReader
from penstock.spark.plans.plan_tree import PlanNode
from penstock.spark.session import is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NEEDS_ROWS = "<penstock-needs-rows>"
_CALL = re.compile(r"(\S+\.py):(\d+)")
# Looking for a line costs a few calls into the JVM for each expression.
_MOST_EXPRESSIONS = 16


class PlanUnreadable(Exception):
    """The plan of a DataFrame cannot be read: it is of Spark Connect, or of a Spark that is not known."""


class NeedsRows(Exception):
    """Raised, in a Python worker, by an action on a DataFrame that only stands for a table."""


def leaf(spark: SparkSession, schema: StructType, table: str) -> DataFrame:
    """A DataFrame that stands for a table in a plan. To run it raises an error that `needs_rows` knows.

    Only an action that Spark answers without any row, as of ``limit(0)``, does not raise.
    """
    from pyspark.sql.types import StructField, StructType

    if is_connect(spark):
        raise PlanUnreadable("Spark Connect keeps its plans to itself")
    tagged = StructType(
        [
            StructField(f.name, f.dataType, f.nullable, {**f.metadata, TABLE: table, FIELD: f.name})
            for f in schema
        ]
    )
    return spark.range(0, 1, 1, 1).mapInArrow(penstock_stands_for_rows, tagged)


def penstock_stands_for_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # noqa: ARG001
    """What a task of `leaf` runs. Plans know the leaf by the name of this function."""
    raise NeedsRows(f"{_NEEDS_ROWS} a transform that is only planned has asked for rows")


assert penstock_stands_for_rows.__name__ == STANDS_FOR_ROWS


def needs_rows(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from, says that a `leaf` was run."""
    seen: BaseException | None = error
    while seen is not None:
        if _NEEDS_ROWS in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def read(frame: DataFrame, known: Collection[object] = ()) -> PlanNode:
    """The analysed plan of a DataFrame of a classic session.

    An RDD in it may have been made of the rows of any table, unless it is part of one of the DataFrames in
    ``known`` (anything else there is passed over), or its rows came from the Python driver.
    """
    from py4j.protocol import Py4JError

    if not hasattr(frame, "_jdf"):
        raise PlanUnreadable("Spark Connect keeps its plans to itself")
    try:
        rdds = [rdd for other in known if hasattr(other, "_jdf") for rdd in _rdds(_analysed(other))]
        columns = {column.exprId().id() for rdd in rdds for column in _items(rdd.output())}
        plan = _analysed(frame)
        details = _JvmNode([plan], frozenset(rdd.rdd().id() for rdd in rdds))
        return PlanReader(frozenset(columns)).read(grow(json.loads(plan.toJSON())), details)
    except (Py4JError, AttributeError, LookupError, TypeError, ValueError, Unexpected) as error:
        raise PlanUnreadable(f"Spark's plan is not as expected: {type(error).__name__}: {error}") from error
    except RecursionError as error:
        raise PlanUnreadable("the plan is too deep") from error


# Each of their tasks makes rows of those of one task below it, which has the same number.
_IN_PLACE = frozenset(
    {"Project", "Filter", "Generate", "Expand", "MapInArrow", "MapInPandas", "SubqueryAlias", "Range"}
)


def stays_in_place(frame: DataFrame) -> bool:
    """Whether each task of a DataFrame has exactly what it made of the rows of one task of its scan.

    Such tasks have the number of the scan's task. False where the plan cannot be read.
    """
    try:
        return all(node.name in _IN_PLACE for node in read(frame).walk())
    except PlanUnreadable:
        return False


def _analysed(frame: object) -> Any:
    return cast("Any", frame)._jdf.queryExecution().analyzed()  # noqa: SLF001


def _items(sequence: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    for number in range(sequence.size()):
        yield sequence.apply(number)


def _rdds(plan: Any) -> list[Any]:
    return [node for node in _items(plan.collectLeaves()) if _kind(node) == "LogicalRDD"]


def _kind(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())


@dataclass(slots=True)
class _JvmNode:
    """An operator in the JVM, which is looked for when something is asked about it."""

    path: list[Any]
    known: frozenset[int]
    _found: Any = field(default=None, init=False)

    def child(self, number: int) -> _JvmNode:
        return _JvmNode([self, number], self.known)

    @property
    def node(self) -> Any:
        if self._found is None:
            first, *number = self.path
            self._found = first.node.children().apply(number[0]) if number else first
        return self._found

    def line(self) -> str:
        """Spark remembers the lines of functions and columns, not those of operators."""
        from py4j.protocol import Py4JError

        with suppress(Py4JError):
            return self._line()
        return ""

    def _line(self) -> str:
        left = list(_items(self.node.expressions()))[::-1]
        for _ in range(_MOST_EXPRESSIONS):
            if not left:
                break
            expression = left.pop()
            context = expression.origin().context()
            by_api = context is not None and context.contextType().toString() == "DataFrame"
            if by_api and (call := _CALL.search(context.callSite())):
                return f"{PurePath(call[1]).name}:{call[2]}"
            left += list(_items(expression.children()))[::-1]
        return ""

    def is_constant(self) -> bool:
        rdd = self.node.rdd()
        if rdd.id() in self.known:
            return True
        # The shape that `createDataFrame` makes of a list. The plan of a table, even of a lazy checkpoint,
        # starts with steps of the JVM instead, and a list of collected rows cannot be had without rows.
        kinds = []
        while True:
            kinds.append(_kind(rdd))
            parents = list(_items(rdd.dependencies()))
            if len(parents) != 1:
                break
            rdd = parents[0].rdd()
        *steps, last, first = ["", *kinds]
        return (
            not parents
            and first == "ParallelCollectionRDD"
            and last == "PythonRDD"
            and {*steps} <= {"", "MapPartitionsRDD", "PythonRDD"}
        )

    def projections(self) -> list[list[Any]] | None:
        return [[json.loads(e.toJSON()) for e in _items(row)] for row in _items(self.node.projections())]

"""The last step of a result on Spark: every column becomes what was described, and what Arrow can carry.

Spark casts (its rules round and its overflows are errors, as PostgreSQL's are), so that the work is done
where the rows are. Only labels are changed on the Arrow side: names, time zones, and intervals that came as
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import SqlError
from penstock.types import postgres as pg
from penstock.types.postgres import Column
from penstock.types.spark import is_interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_MONTH_DAY_NANO = pa.month_day_nano_interval()
_MOST_MICROS = (2**63 - 1) // 1_000
"""Arrow counts nanoseconds in 64 bits, PostgreSQL microseconds."""
_DAY = 86_400_000_000
# PostgreSQL shows at least this many digits of an average.
_OF_FLOAT = "DECIMAL(38,16)"
_TRIPLE = (
    "CASE WHEN {c} IS NOT NULL THEN array(CAST(extract(YEAR FROM {c}) AS BIGINT) * 12 "
    "+ extract(MONTH FROM {c}), CAST(extract(DAY FROM {c}) AS BIGINT), "
    "CAST((CAST(extract(HOUR FROM {c}) AS BIGINT) * 3600 + "
    "extract(MINUTE FROM {c}) * 60 + extract(SECOND FROM {c})) * 1000000 AS BIGINT)) END"
)
MONTHS = "CASE WHEN {c} IS NOT NULL THEN array(CAST(CAST({c} AS INTERVAL MONTH) AS BIGINT), 0L, 0L) END"
PARTS = "CASE WHEN {c} IS NOT NULL THEN array({c}.pg_months + 0L, {c}.pg_days + 0L, {c}.pg_micros) END"
"""Of an interval that the dialect holds in a struct, since none of Spark's types has all three."""
_CLOCK = (
    "CASE WHEN {c} IS NOT NULL THEN CAST((split({c}, ':')[0] * 3600 + split({c}, ':')[1] * 60"
    " + CAST(split({c}, ':')[2] AS DECIMAL(8,6))) * 1000000 AS BIGINT) END"
)
"""Of a time of day, which the dialect holds as text."""
_JSON = "to_json({c}, map('ignoreNullFields', 'false'))"


@dataclass(frozen=True, slots=True)
class _Carried:
    """How a Spark type comes out: an expression over ``{c}``, or None for the column as it is."""

    type: pa.DataType
    expression: str | None = None
    json: bool = False


@dataclass(frozen=True, slots=True)
class ResultShape:
    """A frame whose batches, once fitted, have exactly the types of ``columns``."""

    frame: DataFrame
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [_fitted(array, c.type) for array, c in zip(batch.columns, self.columns, strict=True)]
        schema = pa.schema([pa.field(c.name, c.type) for c in self.columns])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def described(schema: StructType) -> tuple[Column, ...]:
    """The columns of a result as Spark alone describes them."""
    columns = []
    for field in schema.fields:
        carried = _carried(field.dataType)
        column = pg.column(field.name, carried.type, field.nullable)
        if carried.json:
            column = replace(column, oid=pg.JSON)
        elif not _open(carried.type, column):
            column = replace(column, type=pg.arrow_type(column.oid, column.typmod))
        columns.append(column)
    return tuple(columns)


def opened(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The same, with numerics of any precision."""
    return tuple(replace(each, typmod=-1) if each.oid == pg.NUMERIC else each for each in columns)


def shaped(frame: DataFrame, columns: Sequence[Column] | None) -> ResultShape:
    """The frame with its columns as described; as Spark has them where ``columns`` is None."""
    fields = frame.schema.fields
    wanted = described(frame.schema) if columns is None else tuple(columns)
    if len(fields) != len(wanted):
        raise SqlError(
            f"the statement was described with {len(wanted)} columns, but Spark finds {len(fields)}",
            sqlstate="0A000",
            hint="name the columns, or SET penstock.sql = 'spark'",
        )
    expressions, final = [], []
    for number, (field, column) in enumerate(zip(fields, wanted, strict=True)):
        carried = _conformed(_carried(field.dataType), column)
        expressions.append(carried.expression and carried.expression.format(c=f"`c{number}`"))
        final.append(replace(column, type=carried.type))
    names = frame.columns
    if any(expressions) or len(set(names)) < len(names):
        numbered = frame.toDF(*(f"c{n}" for n in range(len(fields))))
        frame = numbered.selectExpr(*(f"{e or f'`c{n}`'} AS `c{n}`" for n, e in enumerate(expressions)))
    return ResultShape(frame, tuple(final))


def _conformed(carried: _Carried, column: Column) -> _Carried:
    """How a type comes out where ``column`` was described."""
    if column.oid == pg.NUMERIC and column.typmod < 0:
        return _numeric(carried)
    if _open(carried.type, column):
        return carried
    wanted = pg.arrow_type(column.oid, column.typmod)
    if alike(carried.type, wanted):
        return replace(carried, type=wanted)
    if column.oid == pg.TIME and pa.types.is_string(carried.type):
        return _Carried(wanted, _CLOCK)
    if _is_interval(carried.type) and _is_interval(wanted):
        return replace(carried, type=wanted)
    if carried.expression is not None and not carried.json and pa.types.is_string(wanted):
        return _Carried(wanted, "CAST({c} AS STRING)")
    return _Carried(wanted, _cast(column, carried.expression or "{c}"))


def _open(type_: pa.DataType, column: Column) -> bool:
    """Whether PostgreSQL's type leaves it open which of Arrow's holds the values, and this one does."""
    if pa.types.is_list(type_):
        inner = pg.element(column.oid)
        return inner is not None and _open(type_.value_type, replace(column, oid=inner))
    return column.oid == pg.NUMERIC and column.typmod < 0 and bool(pa.types.is_decimal(type_))


def _is_interval(type_: pa.DataType) -> bool:
    if pa.types.is_list(type_):
        return _is_interval(type_.value_type)
    return bool(pa.types.is_duration(type_) or type_ == _MONTH_DAY_NANO)


def _cast(column: Column, expression: str) -> str:
    return f"CAST({expression} AS {pg.spark_type(column.oid, column.typmod)})"


def _numeric(carried: _Carried) -> _Carried:
    """A numeric of any precision: Spark's own decimal where it has one."""
    type_ = carried.type
    if pa.types.is_decimal(type_):
        return carried
    if pa.types.is_integer(type_):
        return _Carried(pa.decimal128(19, 0), "CAST({c} AS DECIMAL(19,0))")
    if pa.types.is_floating(type_):
        return _Carried(pa.decimal128(38, 16), f"CAST({{c}} AS {_OF_FLOAT})")
    return _Carried(pa.decimal128(38, 18), "CAST({c} AS DECIMAL(38,18))")


def alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types hold the same values. The names that lists give to their elements do not matter."""
    if pa.types.is_list(one) and pa.types.is_list(other):
        return alike(one.value_type, other.value_type)
    if pa.types.is_time(one) and pa.types.is_time(other):
        return True
    return bool(one == other)


def _carried(kind: DataType) -> _Carried:
    from pyspark.sql import types as t
    from pyspark.sql.pandas.types import to_arrow_type

    if isinstance(kind, t.NullType):
        return _Carried(pa.string(), "CAST({c} AS STRING)")
    if isinstance(kind, t.YearMonthIntervalType):
        return _Carried(_MONTH_DAY_NANO, MONTHS)
    if isinstance(kind, t.CalendarIntervalType):
        return _Carried(_MONTH_DAY_NANO, _TRIPLE)
    if is_interval(kind):
        return _Carried(_MONTH_DAY_NANO, PARTS)
    if isinstance(kind, (t.StructType, t.MapType, t.VariantType)):
        return _Carried(pa.string(), _JSON, json=True)
    if isinstance(kind, t.ArrayType):
        return _array(kind.elementType)
    if type(kind).__name__ in ("GeometryType", "GeographyType"):
        return _Carried(pa.string(), "hex(st_asbinary({c}))")
    if isinstance(kind, t.TimestampType):
        return _Carried(pa.timestamp("us", "UTC"))
    return _Carried(to_arrow_type(kind, timezone="UTC"))


def _array(element: DataType) -> _Carried:
    from pyspark.sql import types as t

    inner = _carried(element)
    if inner.json or isinstance(element, t.ArrayType):
        return _Carried(pa.string(), _JSON, json=True)
    if inner.expression is not None:
        return _Carried(pa.list_(pa.string()), "CAST({c} AS ARRAY<STRING>)")
    return _Carried(pa.list_(inner.type))


def _fitted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if wanted == _MONTH_DAY_NANO:
        return _intervals(*(_days(array) if pa.types.is_duration(array.type) else _numbers(array)))
    if pa.types.is_list(wanted) and _is_interval(wanted):
        values = _fitted(array.flatten(), wanted.value_type)
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
        return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=array.is_null())
    try:
        return array.cast(wanted, safe=not pa.types.is_time(wanted))
    except pa.ArrowInvalid as error:
        raise SqlError(f"a value is out of range for {wanted}: {error}", sqlstate="22003") from error


def _numbers(array: pa.Array) -> tuple[Any, Any]:
    """Lists of months, days and microseconds, one below the other; and which of them are there."""
    there = array.is_valid().to_numpy(zero_copy_only=False)
    numbers = np.zeros((len(array), 3), np.int64)
    numbers[there] = array.flatten().to_numpy(zero_copy_only=False).reshape(-1, 3)
    return numbers, there


def _days(array: pa.Array) -> tuple[Any, Any]:
    """Durations as days and the rest, as PostgreSQL subtracts timestamps; and which of them are there."""
    there = array.is_valid().to_numpy(zero_copy_only=False)
    micros = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    days = np.sign(micros) * (np.abs(micros) // _DAY)
    return np.stack([np.zeros_like(days), days, micros - days * _DAY], axis=1), there


def _intervals(numbers: Any, there: Any) -> pa.Array:
    if (np.abs(numbers[:, 2]) > _MOST_MICROS).any():
        raise SqlError(
            "an interval of more than 292 years that are told in hours is not supported",
            sqlstate="22008",
            hint="justify_interval() and justify_days() tell it in months and days.",
        )
    rows = np.zeros(len(numbers), dtype=[("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    rows["months"], rows["days"], rows["nanos"] = numbers[:, 0], numbers[:, 1], numbers[:, 2] * 1_000
    bits = None if there.all() else pa.array(there).buffers()[1]
    return pa.Array.from_buffers(_MONTH_DAY_NANO, len(rows), [bits, pa.py_buffer(rows.tobytes())])

"""Spark's types, and how they match those of Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import UnknownType
from penstock.types import lattice
from penstock.types.arrow import has_offsets, is_list

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# By the names of Spark's classes, so that this module loads without Spark.
_ARROW: dict[str, pa.DataType] = {
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "StringType": pa.string(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimestampType": pa.timestamp("us", "UTC"),
    "TimestampNTZType": pa.timestamp("us"),
}
"""The types of columns that are not nested and have no digits to tell."""
_SPARK = {arrow: name for name, arrow in _ARROW.items()} | {
    pa.large_string(): "StringType",
    pa.large_binary(): "BinaryType",
}
_NEAREST = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema for an Arrow schema whose types a table can have."""
    from pyspark.sql import types as t

    return t.StructType([t.StructField(f.name, spark_type(f.type), f.nullable) for f in schema])


def spark_type(kind: pa.DataType) -> DataType:
    """The Spark type that holds values of an Arrow type."""
    from pyspark.sql import types as t

    if pa.types.is_decimal(kind):
        return t.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return t.TimestampType() if kind.tz else t.TimestampNTZType()
    if has_offsets(kind):
        return t.ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_struct(kind):
        return spark_schema(pa.schema(list(kind)))
    if kind not in _SPARK:
        raise UnknownType(
            f"Arrow type {kind} has no Spark type", hint="cast it to a type that a table can have"
        )
    made: DataType = getattr(t, _SPARK[kind])()
    return made


def has_spark_type(kind: pa.DataType) -> bool:
    """Whether Spark has just this type, of those that are not nested and have no digits to tell."""
    return kind in _ARROW.values()


def nearest_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns in types that Spark has."""
    return pa.schema([pa.field(f.name, _nearest_type(f.type)) for f in schema])


def _nearest_type(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for values of a type; text, where it has none."""
    t = pa.types
    if t.is_dictionary(kind):
        return _nearest_type(kind.value_type)
    if is_list(kind):
        return pa.list_(_nearest_type(kind.value_type))
    if t.is_struct(kind):
        return pa.struct(list(nearest_schema(pa.schema(list(kind)))))
    if t.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if t.is_decimal(kind):
        return pa.decimal128(min(kind.precision, 38), kind.scale) if kind.scale >= 0 else pa.decimal128(38, 0)
    if has_spark_type(kind):
        return kind
    return _NEAREST.get(kind, pa.binary() if t.is_fixed_size_binary(kind) else pa.string())


def arrow_schema(schema: StructType) -> pa.Schema:
    """The inverse of `spark_schema`."""
    return pa.schema([pa.field(f.name, arrow_type(f.dataType), f.nullable) for f in schema])


def arrow_type(kind: DataType) -> pa.DataType:
    """The inverse of `spark_type`. Raises `UnknownType` for a type that no table can have."""
    from pyspark.sql import types as t

    if (found := _ARROW.get(type(kind).__name__)) is not None:
        return found
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, t.StructType):
        return pa.struct(list(arrow_schema(kind)))
    raise UnknownType(f"a table has no columns of type {kind.simpleString()}")


def sent_type(kind: DataType) -> pa.DataType:
    """As what Spark hands out values of any type; text, where it has no other way."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import YearMonthIntervalType

    if is_interval(kind) or isinstance(kind, YearMonthIntervalType):
        return pa.month_day_nano_interval()
    try:
        return to_arrow_type(kind, timezone="UTC")
    except (PySparkException, TypeError):
        return pa.string()


def is_interval(kind: DataType) -> bool:
    """Whether it is the dialect's own type of intervals."""
    from pyspark.sql import types as t

    return isinstance(kind, t.StructType) and kind.names == ["pg_months", "pg_days", "pg_micros"]


def is_same(have: DataType, want: pa.DataType) -> bool:
    """Whether a column has the type that a table declares, but for nulls inside."""
    found = _comparable(have)
    return found is not None and lattice.is_same(found, want)


def widens(have: DataType, want: pa.DataType) -> bool:
    """Whether a column can be cast to the type that a table declares, and nothing fails or is lost."""
    found = _comparable(have)
    return found is not None and lattice.widens(found, want)


def _comparable(kind: DataType) -> pa.DataType | None:
    """Arrow's type for any of Spark's; None if a table has none that is the same."""
    from pyspark.sql.types import NullType

    if isinstance(kind, NullType):
        return pa.null()
    try:
        return None if _has_collation(kind) else arrow_type(kind)
    except UnknownType:
        return None


def _has_collation(kind: DataType) -> bool:
    """Whether texts in it compare in a way of their own."""
    from pyspark.sql import types as t

    if isinstance(kind, t.ArrayType):
        return _has_collation(kind.elementType)
    if isinstance(kind, t.StructType):
        return any(_has_collation(field.dataType) for field in kind)
    return isinstance(kind, t.StringType) and kind != t.StringType()

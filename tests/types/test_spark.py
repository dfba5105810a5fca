"""Types of Spark and Arrow match, and a column of Spark may be cast to what a table declares."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from penstock.errors import UnknownType
from penstock.types.spark import arrow_type, is_same, sent_type, spark_type, widens


@pytest.mark.parametrize(
    ("arrow", "spark"),
    [
        (pa.int8(), t.ByteType()),
        (pa.int16(), t.ShortType()),
        (pa.int32(), t.IntegerType()),
        (pa.float32(), t.FloatType()),
        (pa.large_string(), t.StringType()),
        (pa.large_binary(), t.BinaryType()),
        (pa.timestamp("us"), t.TimestampNTZType()),
        (pa.large_list(pa.int64()), t.ArrayType(t.LongType(), True)),
    ],
)
def test_spark_types_of_what_inputs_may_have(arrow: pa.DataType, spark: t.DataType) -> None:
    assert spark_type(arrow) == spark


def test_an_arrow_type_without_a_spark_type() -> None:
    with pytest.raises(UnknownType, match=r"time64\[us\] has no Spark type"):
        spark_type(pa.time64("us"))


@pytest.mark.parametrize(
    "spark",
    [
        t.BooleanType(),
        t.ByteType(),
        t.LongType(),
        t.DoubleType(),
        t.StringType(),
        t.BinaryType(),
        t.DateType(),
        t.TimestampType(),
        t.TimestampNTZType(),
        t.DecimalType(18, 4),
        t.ArrayType(t.StringType(), False),
        t.StructType().add("a", t.ArrayType(t.DateType()), False).add("b", "double"),
    ],
    ids=lambda kind: kind.simpleString(),
)
def test_there_and_back(spark: t.DataType) -> None:
    assert spark_type(arrow_type(spark)) == spark
    assert is_same(spark, arrow_type(spark))
    assert sent_type(spark) == arrow_type(spark)


@pytest.mark.parametrize("kind", [t.NullType(), t.VariantType(), t.MapType(t.StringType(), t.LongType())])
def test_types_that_no_table_has(kind: t.DataType) -> None:
    with pytest.raises(UnknownType, match=f"no columns of type {kind.simpleString()}"):
        arrow_type(t.ArrayType(kind))


@pytest.mark.parametrize(
    ("have", "want", "fits"),
    [
        (t.IntegerType(), t.LongType(), True),
        (t.ByteType(), t.ShortType(), True),
        (t.LongType(), t.IntegerType(), False),
        (t.FloatType(), t.DoubleType(), True),
        (t.DoubleType(), t.FloatType(), False),
        (t.LongType(), t.DoubleType(), False),
        (t.DecimalType(10, 2), t.DecimalType(12, 4), True),
        (t.DecimalType(10, 2), t.DecimalType(12, 2), True),
        (t.DecimalType(10, 2), t.DecimalType(11, 4), False),
        (t.DecimalType(10, 4), t.DecimalType(12, 2), False),
        (t.NullType(), t.StringType(), True),
        (t.StringType(), t.BinaryType(), False),
        (t.TimestampNTZType(), t.TimestampType(), False),
        (t.ArrayType(t.LongType(), True), t.ArrayType(t.LongType(), False), True),
        (t.ArrayType(t.IntegerType()), t.ArrayType(t.LongType()), False),
        (t.StructType().add("a", "long"), t.StructType().add("a", "long", False), True),
        (t.StructType().add("a", "long"), t.StructType().add("b", "long"), False),
        (t.StringType("UTF8_LCASE"), t.StringType(), False),
        (t.ArrayType(t.StringType("UTF8_LCASE")), t.ArrayType(t.StringType()), False),
        (t.VarcharType(4), t.StringType(), False),
        (t.DayTimeIntervalType(), t.LongType(), False),
        (t.MapType(t.StringType(), t.LongType()), t.StructType().add("a", "long"), False),
    ],
)
def test_widening(have: t.DataType, want: t.DataType, fits: bool) -> None:
    assert widens(have, arrow_type(want)) is fits

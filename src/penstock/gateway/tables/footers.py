"""Columns of Parquet files from their footers, read right here.

Spark reads footers in a job of its own. That takes longer for a small table than all the rest, and on a
coordinator without workers it never ends.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.gateway.tables import paths
from penstock.gateway.tables.spec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SPARK = b"org.apache.spark.sql.parquet.row.metadata"


def columns(spec: TableSpec) -> StructType | None:
    """What Spark would find, without the columns that folders stand for; None where it has to look itself."""
    merges = any(name.lower() == "mergeschema" for name in dict(spec.options))
    if spec.format != "parquet" or paths.is_remote(spec.path) or merges:
        return None
    file = next(paths.files(spec.path), None)
    if file is None:
        return None
    try:
        found = pq.ParquetFile(file)
    except (OSError, pa.ArrowException):
        return None
    with found:
        return _of(found)


def _of(file: pq.ParquetFile) -> StructType | None:
    from pyspark.sql.types import StructField, StructType

    own = (file.metadata.metadata or {}).get(_SPARK)
    if own is not None:
        schema = StructType.fromJson(json.loads(own))
    else:
        arrow = file.schema_arrow
        old = any(file.schema.column(n).physical_type == "INT96" for n in range(len(file.schema)))
        if old or not all(_is_plain(field.type) for field in arrow):
            return None
        from penstock.tables import spark_schema

        schema = spark_schema(arrow)
    # Other files of the table may hold nulls where this one may not.
    return StructType([StructField(f.name, f.dataType) for f in schema.fields])


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Spark surely reads a column of this type as we would name it."""
    if pa.types.is_timestamp(kind):
        return str(kind.unit) in ("ms", "us")
    signed = pa.types.is_signed_integer(kind)
    real = pa.types.is_float32(kind) or pa.types.is_float64(kind)
    text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return bool(
        signed
        or real
        or text
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal128(kind)
    )

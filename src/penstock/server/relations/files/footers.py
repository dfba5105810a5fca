"""Columns of Parquet files from their footers, read right here.

Spark reads footers in a job of its own. That takes longer for a small table than all the rest, and on a
coordinator without workers it never ends.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.server.relations.files import paths
from penstock.server.relations.spec import TableSpec
from penstock.types.spark import has_spark_type, spark_schema

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
        return StructType.fromJson(_nullable(json.loads(own)))
    arrow = pa.schema([field.with_type(_stored(field.type)) for field in file.schema_arrow])
    old = any(file.schema.column(n).physical_type == "INT96" for n in range(len(file.schema)))
    if old or not all(_is_plain(field.type) for field in arrow):
        return None
    return StructType([StructField(f.name, f.dataType) for f in spark_schema(arrow).fields])


def _nullable(schema: Any) -> Any:
    """A schema as Spark writes it in JSON, with nulls allowed everywhere: other files may hold some."""
    if isinstance(schema, list):
        return [_nullable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    allowed = {name: True for name in ("nullable", "containsNull", "valueContainsNull") if name in schema}
    return {**{name: _nullable(value) for name, value in schema.items()}, **allowed}


def _stored(kind: pa.DataType) -> pa.DataType:
    """How Parquet stores it: whoever wrote a file may have held texts in another way in memory."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Spark surely reads a column of this type as we would name it."""
    if pa.types.is_timestamp(kind):
        return str(kind.unit) in ("ms", "us")
    return has_spark_type(kind) or bool(pa.types.is_decimal128(kind))

"""Columns of a table as Spark, Arrow and the translator know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.server.relations.naming import backquoted
from penstock.types.spark import sent_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema of what Spark gives for these columns."""
    return pa.schema([pa.field(f.name, sent_type(f.dataType), f.nullable) for f in schema.fields])


def ddl_types(schema: StructType) -> Mapping[str, str]:
    """The type of each column as Spark's DDL writes it."""
    return {field.name: ddl(field.dataType) for field in schema.fields}


def ddl(kind: DataType) -> str:
    """A type as Spark's DDL writes it, with names quoted, which `simpleString` leaves bare."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return f"STRUCT<{', '.join(f'{backquoted(f.name)}: {ddl(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, t.ArrayType):
        return f"ARRAY<{ddl(kind.elementType)}>"
    if isinstance(kind, t.MapType):
        return f"MAP<{ddl(kind.keyType)}, {ddl(kind.valueType)}>"
    return kind.simpleString().upper()


def columns_ddl(schema: StructType) -> str:
    """All columns as a CREATE TABLE lists them."""
    return ", ".join(
        f"{backquoted(f.name)} {ddl(f.dataType)}{'' if f.nullable else ' NOT NULL'}" for f in schema.fields
    )


def parsed(columns: str) -> StructType:
    """The inverse of `columns_ddl`."""
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(columns) if columns else StructType([])
    assert isinstance(found, StructType)
    return found

"""Answers to questions about the catalog, with the columns and nullability that the protocol prescribes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.server.base import DATABASE, TableInfo
from penstock.server.flight import flightsql_pb2 as sql
from penstock.server.flight.info import sql_info
from penstock.server.flight.typeinfo import type_info
from penstock.types import postgres

if TYPE_CHECKING:
    from google.protobuf.message import Message

_KINDS = {"table": "TABLE", "view": "VIEW", "system": "SYSTEM TABLE"}

Tables = Callable[[], Sequence[TableInfo]]

_KEYS = pa.schema(
    [
        pa.field("pk_catalog_name", pa.string()),
        pa.field("pk_db_schema_name", pa.string()),
        pa.field("pk_table_name", pa.string(), nullable=False),
        pa.field("pk_column_name", pa.string(), nullable=False),
        pa.field("fk_catalog_name", pa.string()),
        pa.field("fk_db_schema_name", pa.string()),
        pa.field("fk_table_name", pa.string(), nullable=False),
        pa.field("fk_column_name", pa.string(), nullable=False),
        pa.field("key_sequence", pa.int32(), nullable=False),
        pa.field("fk_key_name", pa.string()),
        pa.field("pk_key_name", pa.string()),
        pa.field("update_rule", pa.uint8(), nullable=False),
        pa.field("delete_rule", pa.uint8(), nullable=False),
    ]
)
_PRIMARY = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("column_name", pa.string(), nullable=False),
        pa.field("key_sequence", pa.int32(), nullable=False),
        pa.field("key_name", pa.string()),
    ]
)
_CATALOGS = pa.schema([pa.field("catalog_name", pa.string(), nullable=False)])
_SCHEMAS = pa.schema(
    [pa.field("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), nullable=False)]
)
_TYPES = pa.schema([pa.field("table_type", pa.string(), nullable=False)])


def answer(command: Message, tables: Tables) -> pa.Table | None:
    """The rows that answer a question about the catalog; None if the command is no such question."""
    if isinstance(command, sql.CommandGetCatalogs):
        return _table(_CATALOGS, [(DATABASE,)])
    if isinstance(command, sql.CommandGetDbSchemas):
        return _schemas(command, tables())
    if isinstance(command, sql.CommandGetTables):
        return _tables(command, tables())
    if isinstance(command, sql.CommandGetTableTypes):
        return _table(_TYPES, [(kind,) for kind in _KINDS.values()])
    if isinstance(command, sql.CommandGetPrimaryKeys):
        return _table(_PRIMARY, [])
    keys = (sql.CommandGetExportedKeys, sql.CommandGetImportedKeys, sql.CommandGetCrossReference)
    if isinstance(command, keys):
        return _table(_KEYS, [])
    if isinstance(command, sql.CommandGetSqlInfo):
        return sql_info(command.info)
    if isinstance(command, sql.CommandGetXdbcTypeInfo):
        return type_info(command.data_type if command.HasField("data_type") else None)
    return None


def _schemas(command: sql.CommandGetDbSchemas, tables: Sequence[TableInfo]) -> pa.Table:
    wanted = _like(command, "db_schema_filter_pattern")
    names = sorted({table.schema for table in tables})
    rows = [(DATABASE, name) for name in names if _ours(command) and wanted(name)]
    return _table(_SCHEMAS, rows)


def _tables(command: sql.CommandGetTables, tables: Sequence[TableInfo]) -> pa.Table:
    schema, name = _like(command, "db_schema_filter_pattern"), _like(command, "table_name_filter_pattern")
    kinds = set(command.table_types)
    found = [
        table
        for table in sorted(tables, key=lambda table: (_KINDS[table.kind], table.schema, table.name))
        if _ours(command) and schema(table.schema) and name(table.name)
        if not kinds or _KINDS[table.kind] in kinds
    ]
    fields = [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_type", pa.string(), nullable=False),
    ]
    rows: list[tuple[Any, ...]] = [(DATABASE, each.schema, each.name, _KINDS[each.kind]) for each in found]
    if command.include_schema:
        fields.append(pa.field("table_schema", pa.binary(), nullable=False))
        pairs = zip(rows, found, strict=True)
        rows = [(*row, _as_sent(each.columns).serialize().to_pybytes()) for row, each in pairs]
    return _table(pa.schema(fields), rows)


def _as_sent(columns: pa.Schema) -> pa.Schema:
    """The columns as results bring them, which is not always how files hold them: structs come as JSON."""
    sent = [postgres.column(field.name, field.type, field.nullable) for field in columns]
    return pa.schema(
        [(each.name, postgres.arrow_type(each.oid, each.typmod), each.nullable) for each in sent]
    )


def _ours(command: Any) -> bool:
    return not command.HasField("catalog") or command.catalog in ("", DATABASE)


def _like(command: Any, field: str) -> Callable[[str], bool]:
    """Whether a name matches a pattern of SQL's LIKE; without one, every name does."""
    if not command.HasField(field):
        return lambda _: True
    return lambda name: matches(getattr(command, field), name)


def matches(pattern: str, name: str) -> bool:
    """LIKE, in steps that grow with both lengths: a regular expression of many ``%`` may never end."""
    at = place = 0
    star, tried = -1, 0
    while place < len(name):
        if at < len(pattern) and pattern[at] == "%":
            star, tried = at, place
            at += 1
        elif at < len(pattern) and pattern[at] in ("_", name[place]):
            at, place = at + 1, place + 1
        elif star >= 0:
            # The last % takes one letter more.
            tried += 1
            at, place = star + 1, tried
        else:
            return False
    return not pattern[at:].strip("%")


def _table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)

"""Reads messages back, and asks PostgreSQL for its own."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from psycopg.pq import ExecStatus

from penstock.server.pgwire.encode.rows import RowEncoder
from penstock.server.session_settings import Settings
from penstock.types.postgres import Column, column, type_name

if TYPE_CHECKING:
    import psycopg

Row = list[bytes | None]


def messages(buffers: Iterable[bytes | memoryview]) -> list[tuple[str, bytes]]:
    data = b"".join(buffers)
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at + 1)
        found.append((chr(data[at]), data[at + 5 : at + 1 + length]))
        at += 1 + length
    assert at == len(data)
    return found


def data_rows(buffers: Iterable[bytes | memoryview]) -> list[Row]:
    rows = []
    for kind, body in messages(buffers):
        assert kind == "D"
        (count,) = struct.unpack_from(">H", body)
        row, at = list[bytes | None](), 2
        for _ in range(count):
            (length,) = struct.unpack_from(">i", body, at)
            at += 4
            row.append(None if length < 0 else body[at : at + length])
            at += max(length, 0)
        assert at == len(body)
        rows.append(row)
    return rows


def encoded(array: pa.Array, code: int, settings: Settings | None = None, oid: int | None = None) -> Row:
    """One column as the encoder writes it."""
    return [row[0] for row in data_rows(_encoder(array, code, settings, oid))]


def _encoder(array: pa.Array, code: int, settings: Settings | None, oid: int | None) -> list[memoryview]:
    described = column("x", array.type)
    if oid is not None:
        described = Column("x", array.type, oid)
    batch = pa.record_batch([array], names=["x"])
    return RowEncoder([described], [code], settings or Settings()).encode(batch)


def postgres_says(connection: psycopg.Connection, texts: Sequence[bytes | None], oid: int, code: int) -> Row:
    """What PostgreSQL sends for values that it reads from texts."""
    sql = f"SELECT v::{type_name(oid)} FROM unnest($1::text[]) WITH ORDINALITY AS t(v, n) ORDER BY n"
    literal = "{{{}}}".format(",".join(_element(text) for text in texts))
    result = connection.pgconn.exec_params(sql.encode(), [literal.encode()], result_format=code)
    assert result.status == ExecStatus.TUPLES_OK, result.error_message
    return [result.get_value(row, 0) for row in range(result.ntuples)]


def _element(text: bytes | None) -> str:
    if text is None:
        return "NULL"
    return '"' + text.decode().replace("\\", "\\\\").replace('"', '\\"') + '"'


def agree(
    connection: psycopg.Connection,
    array: pa.Array,
    settings: Settings | None = None,
    oid: int | None = None,
) -> None:
    """PostgreSQL reads our text, and prints and packs it as we do.

    Text and binary are made by different code, so both being PostgreSQL's means that the value is right.
    """
    kind = column("x", array.type).oid if oid is None else oid
    text = encoded(array, 0, settings, oid)
    _same(text, postgres_says(connection, text, kind, 0))
    packed = encoded(array, 1, settings, oid)
    _same(packed, postgres_says(connection, text, kind, 1))


def _same(ours: Row, theirs: Row) -> None:
    pairs = enumerate(zip(ours, theirs, strict=True))
    differences = [(at, mine, other) for at, (mine, other) in pairs if mine != other]
    if differences:
        raise AssertionError(f"{len(differences)} differ from PostgreSQL's: {differences[:10]}")

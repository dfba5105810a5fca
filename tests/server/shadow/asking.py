"""Tables, users and short ways to ask."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from penstock.server.base import Relay, TableInfo, User
from penstock.server.session_settings import Settings
from penstock.server.shadow import Shadow

PETER = User("peter")
RITA = User("Rita O'Hara", schemas=frozenset({"public"}))
ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.string()),
        pa.field("total", pa.decimal128(12, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
TABLES = [
    TableInfo("public", "orders", "table", ORDERS),
    TableInfo("public", "big orders", "view", ORDERS),
    TableInfo("Sales 2", 'odd "name"', "table", pa.schema([('a "b"', pa.int32()), ("Ä", pa.date32())])),
    TableInfo("sys", "queries", "system", pa.schema([("id", pa.string()), ("rows", pa.int64())])),
]


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that also another user can walk through, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="penstock-shadow-") as name:
        Path(name).chmod(0o711)
        yield Path(name) / "shadow"


def ask(
    shadow: Shadow, sql: str, *values: object, user: User = PETER, oids: Sequence[int] = (), **settings: str
) -> list[list[str | None]]:
    """All rows, as text."""
    relay = shadow.run(sql, oids, values, user, Settings(settings), None)
    return [
        [None if value is None else value.decode() for value in row]
        for rows in relay.rows(binary=False)
        for row in rows
    ]


def relay(shadow: Shadow, sql: str, *values: object, user: User = PETER) -> Relay:
    """A query with its columns described, not yet run."""
    described = shadow.describe(sql, (), user, Settings())
    return shadow.run(sql, described.parameters, values, user, Settings(), described.columns)

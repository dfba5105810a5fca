"""Tables to read, of a real PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.sources import state as states
from penstock.sources.postgres.source import PostgresPart, PostgresSource
from penstock.types.tables import Table
from servers.postgres import Postgres

if TYPE_CHECKING:
    import psycopg

NUMBERS = count(1)
PATIENCE = 20.0


class Items(Table):
    id: int
    note: str


def new_table(db: psycopg.Connection[Any], columns: str = "id bigserial PRIMARY KEY, note text") -> str:
    name = f"t{next(NUMBERS)}"
    db.execute(f"CREATE TABLE {name} ({columns})")
    return name


def fill(db: psycopg.Connection[Any], name: str, rows: int) -> None:
    db.execute(f"INSERT INTO {name} (note) SELECT 'n' || g FROM generate_series(1, {rows}) g")


def drain(part: PostgresPart, limit: int = 1000) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while (batch := part.poll(limit)) is not None:
        assert 0 < batch.num_rows <= limit
        rows += batch.to_pylist()
    return rows


def ids(part: PostgresPart, limit: int = 1000) -> list[int]:
    return [row["id"] for row in drain(part, limit)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.02)


def moved(source: PostgresSource, part: PostgresPart, name: str = "0/1") -> PostgresPart:
    """The part as another instance builds it: from its state, stored and read back."""
    text = states.encode(name, part.snapshot())
    part.close()
    return source.build_part(name, states.decode(name, text))


def only(server: Postgres, name: str, table: type[Table] = Items, **options: Any) -> PostgresPart:
    return PostgresSource(server.url, name, table, **{"key": "id", **options}).build_part("0/1", None)

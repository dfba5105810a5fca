"""Files to read, servers, and parts that are read to the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from penstock.sources.base import Part
from penstock.sources.state import State, decode, encode
from penstock.types.tables import Table
from servers.packages import Missing
from servers.postgres import Postgres

if TYPE_CHECKING:
    import psycopg

    from penstock.sources.kafka.source import KafkaPart
    from penstock.sources.postgres.source import PostgresPart
    from servers.kafka import Kafka


class Orders(Table):
    id: int
    price: float
    note: str | None
    at: datetime


def orders(rows: int, first: int = 0) -> pa.Table:
    """Rows with quotes, line breaks, commas and nulls in them."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    made = [
        {
            "id": n,
            "price": n + 0.5,
            "note": None if n % 7 == 3 else f'n°{n}\n"x", ü',
            "at": begin + timedelta(seconds=n),
        }
        for n in range(first, first + rows)
    ]
    return pa.Table.from_pylist(made, schema=Orders.input_schema())


def save(table: pa.Table, path: Path, chunk: int = 25) -> Path:
    """Write a file as its ending says, as a writer should: beside its place, and renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.tmp")
    match path.suffix:
        case ".parquet":
            pq.write_table(table, beside, row_group_size=chunk)
        case ".arrow":
            with pa.OSFile(str(beside), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=chunk)
        case ".csv":
            csv.write_csv(table, beside)
        case _:
            beside.write_text(json_lines(table), encoding="utf-8")
    return beside.rename(path)


def json_lines(table: pa.Table) -> str:
    rows = [{**row, "at": f"{row['at']:%Y-%m-%dT%H:%M:%SZ}"} for row in table.to_pylist()]
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def read(part: Part, limit: int = 1000, most: int | None = None) -> list[dict[str, Any]]:
    """What a part brings until it has nothing now, or until there are ``most`` rows."""
    rows: list[dict[str, Any]] = []
    while most is None or len(rows) < most:
        brought = part.poll(limit if most is None else min(limit, most - len(rows)))
        if brought is None:
            break
        assert isinstance(brought, pa.RecordBatch)
        assert 0 < brought.num_rows <= limit
        rows += brought.to_pylist()
        if part.is_finished():
            break
    return rows


def stored(state: State) -> State:
    """The state as it comes back after it was committed."""
    return decode("p", encode("p", state))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    from tests.sources.kafka_topics import started

    with started() as server:
        yield server


@pytest.fixture
def kafka_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[KafkaPart]]:
    """The parts that a test builds, which are closed after it: some tests abandon theirs, as a kill does."""
    from penstock.sources.kafka.shared_consumer import SharedConsumer
    from penstock.sources.kafka.source import KafkaSource

    built: list[KafkaPart] = []
    build = KafkaSource.build_part

    def kept(source: KafkaSource, part: str, state: Any) -> KafkaPart:
        built.append(build(source, part, state))
        return built[-1]

    monkeypatch.setattr(KafkaSource, "build_part", kept)
    yield built
    for part in built:
        part.close()
    assert not SharedConsumer._all, "a consumer is left, though all parts are closed"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        postgres = Postgres(settings=["max_prepared_transactions=4", "fsync=off"])
    except Missing as missing:
        pytest.skip(str(missing))
    with postgres:
        yield postgres


@pytest.fixture
def db(server: Postgres) -> Iterator[psycopg.Connection[Any]]:
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def other(server: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """A second session, whose transactions a test begins and ends by hand."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgres_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PostgresPart]]:
    """The parts that a test builds, which are closed after it: some tests abandon theirs, as a kill does."""
    from penstock.sources.postgres.source import PostgresSource

    built: list[PostgresPart] = []
    build = PostgresSource.build_part

    def kept(source: PostgresSource, part: str, state: Any) -> PostgresPart:
        built.append(build(source, part, state))
        return built[-1]

    monkeypatch.setattr(PostgresSource, "build_part", kept)
    yield built
    for part in built:
        part.close()

"""Keys of PostgreSQL that are committed out of order: nothing lost, whoever commits when."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from penstock.sources.postgres import horizon
from penstock.sources.postgres.source import PostgresSource
from servers.postgres import Postgres
from tests.sources.postgres_tables import NUMBERS, Items, fill, ids, moved, new_table, only

pytestmark = pytest.mark.usefixtures("postgres_parts")


@pytest.mark.parametrize("wait_for", ["transactions", "writers"])
def test_a_smaller_key_that_is_committed_later_is_not_lost(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any], wait_for: str
) -> None:
    name = new_table(db)
    part = only(server, name, wait_for=wait_for)
    other.execute("BEGIN")
    fill(other, name, 1)
    fill(db, name, 1)
    assert part.poll(10) is None
    other.execute("COMMIT")
    assert ids(part) == [1, 2]


def test_without_waiting_it_would_be_lost(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any]
) -> None:
    """The trap is real, and the tests around this one fall into it."""
    name = new_table(db)
    part = only(server, name, wait_for="nothing")
    other.execute("BEGIN")
    fill(other, name, 1)
    fill(db, name, 1)
    assert ids(part) == [2]
    other.execute("COMMIT")
    assert ids(part) == []


@pytest.mark.parametrize("wait_for", ["transactions", "writers"])
def test_an_older_transaction_with_the_greater_key_hides_nothing(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any], wait_for: str
) -> None:
    """Rows judged one by one by their xmin would fail here: the younger transaction has the smaller key."""
    name, elsewhere = new_table(db), new_table(db)
    part = only(server, name, wait_for=wait_for)
    db.execute("BEGIN")
    fill(db, elsewhere, 1)
    other.execute("BEGIN")
    fill(other, name, 1)
    fill(db, name, 1)
    db.execute("COMMIT")
    assert part.poll(10) is None
    other.execute("COMMIT")
    assert ids(part) == [1, 2]


def test_a_key_taken_before_the_first_write_is_waited_for(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any]
) -> None:
    """The transaction has no id yet, and no lock on the table."""
    name = new_table(db)
    part = only(server, name)
    other.execute("BEGIN")
    other.execute(f"SELECT nextval('{name}_id_seq')")
    fill(db, name, 1)
    assert part.poll(10) is None
    other.execute(f"INSERT INTO {name} VALUES (1, 'late')")
    other.execute("COMMIT")
    assert ids(part) == [1, 2]


def test_a_transaction_that_is_rolled_back_is_not_waited_for_any_longer(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any]
) -> None:
    name = new_table(db)
    part = only(server, name)
    other.execute("BEGIN")
    fill(other, name, 1)
    fill(db, name, 1)
    assert part.poll(10) is None
    other.execute("ROLLBACK")
    assert ids(part) == [2]


@pytest.mark.parametrize("wait_for", ["transactions", "writers"])
def test_a_transaction_that_is_prepared_meanwhile_is_waited_for(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any], wait_for: str
) -> None:
    name = new_table(db)
    part = only(server, name, wait_for=wait_for)
    other.execute("BEGIN")
    fill(other, name, 1)
    fill(db, name, 1)
    assert part.poll(10) is None
    other.execute(f"PREPARE TRANSACTION '{name}'")
    assert part.poll(10) is None
    other.execute(f"COMMIT PREPARED '{name}'")
    assert ids(part) == [1, 2]


def test_who_is_waited_for_too_long_is_named_once(
    server: Postgres,
    db: psycopg.Connection[Any],
    other: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(horizon, "_PATIENCE", 0.0)
    name = new_table(db)
    fill(db, name, 1)
    other.execute("BEGIN")
    part = only(server, name)
    for _ in range(2):
        assert part.poll(10) is None
    other.execute("ROLLBACK")
    (told,) = [each.getMessage() for each in caplog.records if "waits for open transactions" in each.message]
    assert f"backends: {other.info.backend_pid}" in told


def test_writers_of_other_tables_hold_only_the_cautious_back(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any]
) -> None:
    name, elsewhere = new_table(db), new_table(db)
    fill(db, name, 1)
    other.execute("BEGIN")
    fill(other, elsewhere, 1)
    assert only(server, name, wait_for="transactions").poll(10) is None
    assert ids(only(server, name, wait_for="writers")) == [1]
    other.execute("ROLLBACK")


def test_transactions_of_other_databases_hold_nothing_back(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    name, database = new_table(db), f"d{next(NUMBERS)}"
    fill(db, name, 1)
    db.execute(f"CREATE DATABASE {database}")
    with psycopg.connect(server.url.replace("/postgres", f"/{database}"), autocommit=True) as elsewhere:
        elsewhere.execute("BEGIN")
        elsewhere.execute("CREATE TABLE t ()")
        assert ids(only(server, name)) == [1]


@pytest.mark.parametrize("through", ["partition", "parent"])
def test_writers_of_partitions_count_as_writers_of_the_table(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any], through: str
) -> None:
    name = new_table(db)
    parent = f"{name}p"
    db.execute(f"CREATE TABLE {parent} (id bigint PRIMARY KEY, note text) PARTITION BY RANGE (id)")
    db.execute(f"CREATE TABLE {parent}1 PARTITION OF {parent} FOR VALUES FROM (0) TO (100)")
    db.execute(f"CREATE TABLE {parent}2 PARTITION OF {parent} FOR VALUES FROM (100) TO (200)")
    part = only(server, parent, wait_for="writers")
    other.execute("BEGIN")
    other.execute(f"INSERT INTO {parent}{'1' if through == 'partition' else ''} VALUES (1, 'a')")
    db.execute(f"INSERT INTO {parent} VALUES (150, 'b')")
    assert part.poll(10) is None
    other.execute("COMMIT")
    assert ids(part) == [1, 150]


def test_writers_of_the_whole_table_count_where_one_partition_is_read(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any]
) -> None:
    """A row on its way into the partition has taken its key with a lock on the whole table alone."""
    name = new_table(db)
    parent = f"{name}p"
    db.execute(f"CREATE TABLE {parent} (id bigint PRIMARY KEY, note text) PARTITION BY RANGE (id)")
    db.execute(f"CREATE TABLE {parent}1 PARTITION OF {parent} FOR VALUES FROM (0) TO (100)")
    db.execute(f"CREATE TABLE {parent}2 PARTITION OF {parent} FOR VALUES FROM (100) TO (200)")
    db.execute(f"INSERT INTO {parent} VALUES (1, 'a')")
    part = only(server, f"{parent}1", wait_for="writers")
    other.execute("BEGIN")
    other.execute(f"INSERT INTO {parent} VALUES (150, 'b')")
    assert part.poll(10) is None
    other.execute("COMMIT")
    assert ids(part) == [1]


def test_while_many_sessions_write_every_row_comes_once_and_in_order(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    name = new_table(db)
    done = threading.Event()

    def write(seed: int) -> None:
        with psycopg.connect(server.url) as connection:
            for n in range(40):
                connection.execute(f"INSERT INTO {name} (note) VALUES ('{seed}-{n}')")
                connection.execute("SELECT pg_sleep(%s)", [((seed * 7 + n * 3) % 11) / 2000])
                connection.rollback() if (seed + n) % 9 == 0 else connection.commit()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(6)]
    source = PostgresSource(server.url, name, Items, key="id")
    part, seen = source.build_part("0/1", None), list[int]()

    def read() -> None:
        nonlocal part
        rounds = 0
        while not done.is_set():
            seen.extend(ids(part, 17))
            rounds += 1
            if rounds % 5 == 0:
                part = moved(source, part)

    reader = threading.Thread(target=read)
    for thread in [reader, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    seen += ids(part)
    assert seen == [row[0] for row in db.execute(f"SELECT id FROM {name} ORDER BY id")]

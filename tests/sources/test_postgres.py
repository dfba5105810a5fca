"""A table of a real PostgreSQL as a source: nothing lost, whoever commits when."""

from __future__ import annotations

import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

from penstock.errors import InputError, NullInField, TransientError, TypeMismatch, UsageError
from penstock.sources import conformance, postgres
from penstock.sources import state as states
from penstock.sources.postgres import PostgresPart, PostgresSource
from penstock.tables import Precision, Table
from servers.packages import Missing
from servers.postgres import Postgres

NUMBERS = count(1)
PATIENCE = 20.0


class Items(Table):
    id: int
    note: str


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
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def other(server: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """A second session, whose transactions a test begins and ends by hand."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        yield connection


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[PostgresPart]]:
    """The parts that a test builds, which are closed after it: some tests abandon theirs, as a kill does."""
    built: list[PostgresPart] = []
    build = PostgresSource.build_part

    def kept(source: PostgresSource, part: str, state: Any) -> PostgresPart:
        built.append(build(source, part, state))
        return built[-1]

    monkeypatch.setattr(PostgresSource, "build_part", kept)
    yield built
    for part in built:
        part.close()


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


@pytest.fixture(scope="module")
def steady(server: Postgres) -> str:
    with psycopg.connect(server.url, autocommit=True) as db:
        name = new_table(db)
        fill(db, name, 120)
    return name


@pytest.mark.parametrize("end", [None, 100], ids=["endless", "finite"])
@pytest.mark.parametrize("name", conformance.NAMES)
def test_conformance(server: Postgres, steady: str, name: str, end: int | None) -> None:
    source = PostgresSource(server.url, steady, Items, key="id", parts=2, until=end)
    conformance.check(source, only=name, quiet=0.05)


def test_rows_come_in_the_order_of_the_key_and_new_ones_later(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    name = new_table(db)
    fill(db, name, 2_500)
    part = only(server, name)
    assert ids(part, 700) == list(range(1, 2_501))
    assert part.poll(10) is None
    fill(db, name, 3)
    assert ids(part) == [2_501, 2_502, 2_503]
    assert not part.is_finished()


def test_from_a_state_the_same_rows_come_again_however_they_are_cut(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    name = new_table(db)
    fill(db, name, 1_000)
    source = PostgresSource(server.url, name, Items, key="id")
    part = source.build_part("0/1", None)
    part.poll(123)
    state = part.snapshot()
    first = drain(part)
    for limit in (1, 7, 400):
        again = source.build_part("0/1", state)
        assert drain(again, limit) == first
        assert again.snapshot() == part.snapshot()


def test_a_part_goes_on_where_it_was_collected(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db)
    fill(db, name, 50)
    source = PostgresSource(server.url, name, Items, key="id")
    part = source.build_part("0/1", None)
    seen: list[int] = []
    for _ in range(10):
        batch = part.poll(5)
        assert batch is not None
        seen += batch.column("id").to_pylist()
        assert part.collect() == seen[-1]
        part = moved(source, part)
    assert seen == list(range(1, 51))


def test_what_was_polled_after_the_last_snapshot_comes_again_after_a_kill(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    name = new_table(db)
    fill(db, name, 30)
    source = PostgresSource(server.url, name, Items, key="id")
    committed: list[int] = []
    state = None
    for round_ in range(6):
        part = source.build_part("0/1", state)
        batch = part.poll(10)
        if batch is None or round_ % 2:
            continue  # killed: neither rows nor state were committed, nothing was closed
        committed += batch.column("id").to_pylist()
        state = part.snapshot()
    assert committed == list(range(1, 31))


def test_a_source_travels_to_executors(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db)
    fill(db, name, 3)
    source = pickle.loads(pickle.dumps(PostgresSource(server.url, name, Items, key="id")))
    assert ids(source.build_part("0/1", None)) == [1, 2, 3]


# keys that are committed out of order


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
    monkeypatch.setattr(postgres, "_PATIENCE", 0.0)
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


# kinds of keys


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("smallint", [-5, 0, 9]),
        ("numeric", [Decimal("-1.5"), Decimal(2), Decimal("2.00001")]),
        ("text", ["", "a'b", "z", "ä"]),
        ("uuid", [UUID(int=1), UUID(int=2**127)]),
        ("timestamptz", [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC)]),
    ],
)
def test_kinds_of_keys(
    server: Postgres, db: psycopg.Connection[Any], kind: str, values: list[object]
) -> None:
    class Notes(Table):
        note: str

    name = new_table(
        db,
        f'id {kind} COLLATE "C" PRIMARY KEY, note text'
        if kind == "text"
        else f"id {kind} PRIMARY KEY, note text",
    )
    for n, value in enumerate(values):
        db.execute(f"INSERT INTO {name} VALUES (%s, %s)", [value, str(n)])
    source = PostgresSource(server.url, name, Notes, key="id")
    part = source.build_part("0/1", None)
    for n, value in enumerate(values):
        batch = part.poll(1)
        assert batch is not None
        assert batch.to_pylist() == [{"note": str(n)}]
        assert part.snapshot() == value
        part = moved(source, part)
    assert part.poll(1) is None


def test_a_key_of_two_columns_tells_rows_of_the_same_time_apart(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    name = new_table(db, "at timestamptz NOT NULL, id int PRIMARY KEY, note text")
    db.execute(f"INSERT INTO {name} SELECT '2024-01-01', g, '' FROM generate_series(1, 10) g")
    db.execute(f"INSERT INTO {name} VALUES ('2023-01-01', 11, '')")
    source = PostgresSource(server.url, name, Items, key=("at", "id"))
    part = source.build_part("0/1", None)
    seen: list[int] = []
    while (batch := part.poll(3)) is not None:
        seen += batch.column("id").to_pylist()
        part = moved(source, part)
    assert seen == [11, *range(1, 11)]


def test_times_of_the_last_second_are_left_time_to_appear(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    name = new_table(db, "at timestamptz DEFAULT now(), id bigserial, note text, PRIMARY KEY (at, id)")
    fill(db, name, 3)
    part = only(server, name, key=("at", "id"))
    assert part.poll(10) is None
    seen: list[list[int]] = []

    def came() -> bool:
        seen.append(ids(part))
        return bool(seen[-1])

    until(came)
    assert seen[-1] == [1, 2, 3]


def test_parts_share_the_rows_out(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db)
    fill(db, name, 1_000)
    source = PostgresSource(server.url, name, Items, key="id", parts=4)
    parts = [source.build_part(each, None) for each in source.list_parts()]
    shares = [ids(part, 90) for part in parts]
    fill(db, name, 1_000)
    later = [ids(part, 90) for part in parts]
    assert sorted(each for share in [*shares, *later] for each in share) == list(range(1, 2_001))
    assert all(150 < len(share) < 350 for share in shares)
    with pytest.raises(UsageError, match="as many parts as before"):
        source.build_part("0/3", None)


# the end


def test_with_an_end_it_finishes_when_all_up_to_it_is_read(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any]
) -> None:
    name = new_table(db)
    fill(db, name, 4)
    part = only(server, name, until=6)
    assert ids(part) == [1, 2, 3, 4]
    assert not part.is_finished()
    other.execute("BEGIN")
    fill(other, name, 2)  # 5 and 6
    fill(db, name, 1)  # 7
    assert part.poll(10) is None
    assert not part.is_finished()
    other.execute("COMMIT")
    assert ids(part) == [5, 6]
    assert part.is_finished()
    assert part.snapshot() == 6


def test_an_end_that_no_row_has_is_passed_by_a_greater_key(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    name = new_table(db)
    db.execute(f"INSERT INTO {name} VALUES (1, 'a'), (9, 'b')")
    part = only(server, name, until=5)
    assert ids(part) == [1]
    assert part.is_finished()


def test_built_at_its_end_it_is_finished(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db)
    fill(db, name, 3)
    source = PostgresSource(server.url, name, Items, key="id", until=3)
    part = source.build_part("0/1", None)
    assert ids(part) == [1, 2, 3]
    again = moved(source, part)
    assert again.poll(10) is None
    assert again.is_finished()


# values


class Everything(Table):
    id: int
    small: int | None
    real: float | None
    price: Annotated[Decimal, Precision(12, 3)] | None
    text: str | None
    token: str | None
    document: str | None
    data: bytes | None
    flag: bool | None
    day: date | None
    at: datetime | None


EVERYTHING = (
    "id int PRIMARY KEY, small smallint, real double precision, price numeric(12, 3), text varchar, "
    "token uuid, document jsonb, data bytea, flag boolean, day date, at timestamptz, ignored point"
)


def test_values_of_all_kinds(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db, EVERYTHING)
    token = UUID(int=77)
    at = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)
    text = "quotes \" ' , and\nlines\r\n\\. \\N ä"
    db.execute(
        f"INSERT INTO {name} VALUES (1, -3, 1.5, 12.345, %s, %s, '{{\"a\": 1}}', %s, true, '2024-02-29', %s)",
        [text, token, b"\x00\xff\n", at],
    )
    db.execute(f"INSERT INTO {name} (id) VALUES (2)")
    db.execute(f"INSERT INTO {name} (id, text, real, data) VALUES (3, '', 'NaN', '')")
    part = only(server, name, Everything)
    batch = part.poll(10)
    assert batch is not None
    assert batch.schema == Everything.input_schema()
    one, two, three = batch.to_pylist()
    assert one == {
        "id": 1,
        "small": -3,
        "real": 1.5,
        "price": Decimal("12.345"),
        "text": text,
        "token": str(token),
        "document": '{"a": 1}',
        "data": b"\x00\xff\n",
        "flag": True,
        "day": date(2024, 2, 29),
        "at": at,
    }
    assert {key for key, value in two.items() if value is not None} == {"id"}
    assert (three["text"], three["data"]) == ("", b"")
    assert three["real"] != three["real"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("note int", "column note is integer in PostgreSQL, and items.note is declared as string"),
        ("note text[]", "column note is text[] in PostgreSQL"),
        ("other text", "has no column 'note'"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    server: Postgres, db: psycopg.Connection[Any], column: str, message: str
) -> None:
    name = new_table(db, f"id int PRIMARY KEY, {column}")
    with pytest.raises((TypeMismatch, InputError), match=re.escape(message)):
        only(server, name).poll(1)


def test_values_that_do_not_fit_are_named(server: Postgres, db: psycopg.Connection[Any]) -> None:
    class Prices(Table):
        id: int
        price: Annotated[Decimal, Precision(10, 2)]

    name = new_table(db, "id int PRIMARY KEY, price numeric")
    db.execute(f"INSERT INTO {name} VALUES (1, 1.234)")
    with pytest.raises(InputError, match=r"column price \(decimal128\(10, 2\)\)"):
        only(server, name, Prices).poll(1)
    db.execute(f"UPDATE {name} SET price = NULL")
    with pytest.raises(NullInField, match="column price is null"):
        only(server, name, Prices).poll(1)


def test_a_failed_poll_loses_no_row(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db)
    fill(db, name, 2)
    db.execute(f"UPDATE {name} SET note = NULL WHERE id = 2")
    part = only(server, name)
    with pytest.raises(NullInField):
        part.poll(10)
    assert part.snapshot() is None
    db.execute(f"UPDATE {name} SET note = 'mended' WHERE id = 2")
    assert ids(part) == [1, 2]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("id int, note text", "can be null"),
        ("id int NOT NULL, note text", "unique"),
        ("id timestamp PRIMARY KEY, note text", "cannot be a key"),
    ],
)
def test_keys_that_would_lose_rows_are_refused(
    server: Postgres, db: psycopg.Connection[Any], columns: str, message: str
) -> None:
    class Notes(Table):
        note: str

    name = new_table(db, columns)
    with pytest.raises((InputError, TypeMismatch), match=message):
        only(server, name, Notes).poll(1)


def test_a_sequence_with_a_cache_is_refused(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db)
    db.execute(f"ALTER SEQUENCE {name}_id_seq CACHE 20")
    with pytest.raises(InputError, match="has a cache") as caught:
        only(server, name).poll(1)
    assert caught.value.hint == f"ALTER SEQUENCE {name}_id_seq CACHE 1"
    assert only(server, name, wait_for="nothing").poll(1) is None


def test_a_view_can_be_read(
    server: Postgres, db: psycopg.Connection[Any], other: psycopg.Connection[Any]
) -> None:
    name = new_table(db, "id bigserial PRIMARY KEY, note text, at timestamp")
    db.execute(f"CREATE VIEW {name}v AS SELECT id, upper(note) AS note FROM {name} WHERE note <> 'n2'")
    part = only(server, f"public.{name}v", wait_for="writers")
    other.execute("BEGIN")
    fill(other, name, 1)
    fill(db, name, 3)
    assert part.poll(10) is None
    other.execute("COMMIT")
    assert [(row["id"], row["note"]) for row in drain(part)] == [(1, "N1"), (2, "N1"), (4, "N3")]


# faults


def test_no_transaction_is_held_between_polls(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db)
    fill(db, name, 5)
    part = only(server, name)
    part.poll(2)
    part.suspend()
    sessions = "SELECT state FROM pg_stat_activity WHERE application_name = 'penstock' AND state <> 'idle'"
    assert db.execute(sessions).fetchall() == []
    db.execute(f"ALTER TABLE {name} ADD COLUMN more int")
    assert ids(part) == [3, 4, 5]


def test_a_cut_connection_is_made_anew(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db)
    fill(db, name, 5)
    part = only(server, name)
    part.poll(2)
    db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'penstock'")
    with pytest.raises(TransientError):
        part.poll(2)
    assert ids(part) == [3, 4, 5]


def test_a_database_that_is_gone_and_back(db: psycopg.Connection[Any]) -> None:
    with Restartable() as server:
        with psycopg.connect(server.url, autocommit=True) as own:
            name = new_table(own)
            fill(own, name, 5)
        part = only(server, name)
        part.poll(2)
        server.stop()
        for _ in range(2):
            with pytest.raises(TransientError):
                part.poll(2)
        server.start()
        assert ids(part) == [3, 4, 5]


class Restartable(Postgres):
    def stop(self) -> None:
        self._command = Path(self._data, "postmaster.opts").read_text().split('" "')
        self._run(self._ctl, "-D", self._data, "-w", "-m", "fast", "stop")

    def start(self) -> None:
        words = [each.strip('"\n') for each in self._command[1:]]
        options = " ".join(words[words.index("-c") :])
        self._run(self._ctl, "-D", self._data, "-l", f"{self._folder}/log", "-w", "-o", options, "start")


def test_a_wrong_password_is_told_and_never_shown(server: Postgres, db: psycopg.Connection[Any]) -> None:
    rules = Path(str(db.execute("SHOW hba_file").fetchone()[0]))  # type: ignore[index]
    before = rules.read_text()
    db.execute("CREATE ROLE guarded LOGIN PASSWORD 'right-horse'")
    rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + before)
    db.execute("SELECT pg_reload_conf()")
    loaded = "SELECT count(*) FROM pg_hba_file_rules WHERE 'guarded' = ANY(user_name)"
    until(lambda: db.execute(loaded).fetchone() == (1,))
    url = server.url.replace("penstock@", "guarded:wrong-horse@")
    source = PostgresSource(url, "whatever", Items, key="id")

    def refused() -> bool:
        with pytest.raises((InputError, TransientError)) as caught:
            source.build_part("0/1", None).poll(1)
        assert "horse" not in f"{caught.value}{caught.value!r}{source!r}{vars(source).keys()}"
        return "password authentication failed" in str(caught.value) and isinstance(caught.value, InputError)

    until(refused)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:horse@battery@host/db",
        "postgresql://u:horse/battery@host/db",
        "postgresql://u:ho%rse@host/db",
        "host=h password=horse battery",
    ],
)
def test_a_password_that_is_not_escaped_is_not_shown(dsn: str) -> None:
    with pytest.raises(UsageError) as caught:
        PostgresSource(dsn, "t", Items, key="id")
    shown = "".join(map(str, [caught.value, caught.value.__cause__]))
    assert "horse" not in shown
    assert "battery" not in shown


def test_a_password_is_no_part_of_what_names_a_source() -> None:
    source = PostgresSource("postgresql://u:horse?battery@host/db?sslpassword=staple", "t", Items, key="id")
    assert repr(source) == "PostgresSource(postgresql://host:5432/db, t)"


def test_what_is_not_there_is_told(server: Postgres, db: psycopg.Connection[Any]) -> None:
    with pytest.raises(InputError, match="there is no table nowhere"):
        only(server, "nowhere").poll(1)
    missing = PostgresSource(server.url.replace("/postgres", "/nodb"), "t", Items, key="id")
    with pytest.raises(InputError, match='database "nodb" does not exist'):
        missing.build_part("0/1", None).poll(1)
    db.execute("CREATE ROLE stranger LOGIN")
    name = new_table(db)
    stranger = PostgresSource(server.url.replace("penstock@", "stranger@"), name, Items, key="id")
    with pytest.raises(InputError, match="permission denied"):
        stranger.build_part("0/1", None).poll(1)


def test_wide_rows_are_fetched_in_smaller_pieces(server: Postgres, db: psycopg.Connection[Any]) -> None:
    name = new_table(db)
    db.execute(f"INSERT INTO {name} (note) SELECT repeat('x', 100000) FROM generate_series(1, 300)")
    part = only(server, name)
    sizes = []
    while (batch := part.poll(100_000)) is not None:
        sizes.append(batch.num_rows)
    assert sum(sizes) == 300
    fill(db, name, 300)
    assert isinstance(after := part.poll(100_000), pa.RecordBatch)
    assert after.num_rows < 100


def test_options_that_make_no_sense(server: Postgres) -> None:
    wrong: list[dict[str, Any]] = [{"parts": 0}, {"key": ()}, {"wait_for": "godot"}, {"until": (1, 2)}]
    for options in wrong:
        with pytest.raises(UsageError):
            PostgresSource(server.url, "t", Items, **{"key": "id", **options})

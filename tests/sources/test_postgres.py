"""A table of a real PostgreSQL as a source: the order of its key, its parts, its end, and faults."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

from penstock.errors import InputError, TransientError, UsageError
from penstock.sources import conformance
from penstock.sources.postgres.source import PostgresSource
from penstock.types.tables import Table
from servers.postgres import Postgres
from tests.sources.postgres_tables import Items, drain, fill, ids, moved, new_table, only, until

pytestmark = pytest.mark.usefixtures("postgres_parts")


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
    assert source.describe() == {
        "database": "postgresql://host:5432/db",
        "table": "t",
        "key": ", ".join(source.key),
        "parts": 1,
    }


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


STOPPED = """
import os, signal, sys
from penstock.sources.postgres import client

client._GIVE_UP_MS = 1000
connection = client.connect(sys.argv[1], "test")
with connection.cursor() as cursor, cursor.copy(f"COPY {sys.argv[2]} TO STDOUT") as copy:
    next(iter(copy))
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_reader_that_was_stopped_does_not_hold_its_table_for_ever(
    server: Postgres, db: psycopg.Connection[Any]
) -> None:
    name = new_table(db)
    db.execute(
        f"CREATE TABLE {name}_wide AS SELECT repeat('x', 1000) FROM generate_series(1, 30000)".encode()
    )
    reader = subprocess.Popen([sys.executable, "-c", STOPPED, server.url, f"{name}_wide"])
    try:
        until(lambda: Path(f"/proc/{reader.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        db.execute("SET lock_timeout = '60s'")
        db.execute(f"DROP TABLE {name}_wide".encode())
    finally:
        db.execute("SET lock_timeout = 0")
        reader.kill()
        reader.wait()

"""PostgreSQL: rows are added or replaced exactly once, whoever dies where."""

from __future__ import annotations

import math
import secrets
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import psycopg
import pytest

from penstock.errors import (
    PenstockError,
    StaleToken,
    StreamError,
    StreamMismatch,
    TransientError,
    TypeMismatch,
    UsageError,
)
from penstock.sinks.postgres import writer as module
from penstock.sinks.postgres.sink import PostgresSink
from penstock.storage import Storage
from penstock.store import Store
from penstock.types.tables import Precision, Table
from servers.packages import Missing
from servers.postgres import Postgres
from tests.sinks.databases import COLUMNS, Database
from tests.sinks.support import Bench, Rows, Sale, bench, crash_at, meanwhile, number, plain, sales

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = [
    "sink.postgres.stage",
    "sink.postgres.rows",
    "sink.postgres.moved",
    "sink.postgres.committed",
]
STAGES = "SELECT tablename::text FROM pg_tables WHERE tablename LIKE 'penstock_stage%'"


@pytest.fixture
def sink(database: Database) -> PostgresSink:
    return PostgresSink(database.url, "sales")


@pytest.fixture
def updating(store: Store, storage: Storage, spark: SparkSession) -> Bench:
    return bench(store, storage, spark, "update")


def test_batches_are_added(output: Bench, sink: PostgresSink, database: Database) -> None:
    writer = output.open(sink, 1)
    for batch in range(3):
        writer.write(output.frame(sales(batch)), number(batch))
    writer.write(output.frame([]), number(3))
    assert database.rows() == plain(sales(0) + sales(1) + sales(2))
    assert database.stages() == 0
    assert database.run("SELECT application, batch, epoch, token FROM penstock_progress") == [
        ("penstock/sales/s1/out", 3, 4, 1)
    ]


def test_a_repeated_batch_changes_nothing(output: Bench, database: Database) -> None:
    database.run("CREATE TABLE plain_sales (id bigint, city text, amount bigint)")
    sink = PostgresSink(database.url, "plain_sales")
    writer = output.open(sink, 1)
    writer.write(output.frame(sales(0)), number(0))
    writer.write(output.frame(sales(0)), number(0))
    output.open(sink, 2).write(output.frame(sales(0)), number(0))
    assert database.rows("plain_sales") == plain(sales(0))


def test_rows_replace_those_of_their_key(updating: Bench, sink: PostgresSink, database: Database) -> None:
    writer = updating.open(sink, 1)
    writer.write(updating.frame([(1, "a", 1), (2, "b", None)]), number(0))
    writer.write(updating.frame([(2, "c", 5), (3, "d", 6)]), number(1))
    assert database.rows() == [(1, "a", 1), (2, "c", 5), (3, "d", 6)]


def test_keys_of_the_sink_come_first(output: Bench, database: Database) -> None:
    database.run("CREATE UNIQUE INDEX ON sales (city) INCLUDE (amount)")
    writer = output.open(PostgresSink(database.url, "sales", keys=("city",)), 1)
    writer.write(output.frame([(1, "a", 1)]), number(0))
    writer.write(output.frame([(2, "a", 2)]), number(1))
    assert database.rows() == [(2, "a", 2)]


def test_a_table_of_keys_alone(updating: Bench, database: Database) -> None:
    class Seen(Table):
        id: int

    sink = PostgresSink(database.url, "seen", create=True)
    writer = updating.open(sink, 1, table=Seen)
    writer.write(updating.frame([(1,), (2,)], Seen), number(0))
    writer.write(updating.frame([(2,), (3,)], Seen), number(1))
    assert database.rows("seen") == [(1,), (2,), (3,)]


def test_complete_replaces_everything(
    store: Store, storage: Storage, spark: SparkSession, sink: PostgresSink, database: Database
) -> None:
    output = bench(store, storage, spark, "complete")
    writer = output.open(sink, 1)
    writer.write(output.frame(sales(0)), number(0))
    writer.write(output.frame(sales(0, 3)), number(1))
    assert database.rows() == plain(sales(0, 3))


def test_a_key_twice_in_one_batch_is_refused(updating: Bench, sink: PostgresSink, database: Database) -> None:
    writer = updating.open(sink, 1)
    with pytest.raises(StreamError, match=r"several rows with the same key .*\(id = 7\)"):
        writer.write(updating.frame([(7, "a", 1), (7, "b", 2), (8, "c", 3)]), number(0))
    assert (database.rows(), database.stages()) == ([], 0)
    writer.write(updating.frame([(7, "a", 1)]), number(0))
    assert database.rows() == [(7, "a", 1)]


def test_an_earlier_owner_is_refused(output: Bench, sink: PostgresSink, database: Database) -> None:
    earlier = output.open(sink, 1)
    earlier.write(output.frame(sales(0)), number(0))
    later = output.open(sink, 2)
    with pytest.raises(StaleToken):
        earlier.write(output.frame(sales(1)), number(1))
    with pytest.raises(StaleToken):
        output.open(sink, 1)
    later.write(output.frame(sales(1)), number(1))
    assert database.rows() == plain(sales(0) + sales(1))
    assert database.stages() == 0


@pytest.mark.parametrize("point", POINTS[:2])
def test_an_owner_that_is_replaced_in_the_middle_of_a_batch_adds_nothing(
    output: Bench, sink: PostgresSink, database: Database, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    earlier = output.open(sink, 1)

    def take_over() -> None:
        output.open(sink, 2).write(output.frame(sales(0, 3)), number(0))

    with meanwhile(monkeypatch, module, point, take_over), pytest.raises(StaleToken):
        earlier.write(output.frame(sales(0)), number(0))
    assert database.rows() == plain(sales(0, 3))


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_is_mended_by_the_repetition(
    output: Bench, sink: PostgresSink, database: Database, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    writer = output.open(sink, 1)
    writer.write(output.frame(sales(0)), number(0))
    with crash_at(monkeypatch, module, point):
        writer.write(output.frame(sales(1)), number(1))
    assert len(database.rows()) == (20 if point == POINTS[-1] else 10)
    after = output.open(sink, 2)
    assert database.stages() == 0
    after.write(output.frame(sales(1)), number(1))
    after.write(output.frame(sales(2)), number(2))
    assert database.rows() == plain(sales(0) + sales(1) + sales(2))


def test_an_attempt_that_spark_repeats_counts_once(
    output: Bench, sink: PostgresSink, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task may have committed its rows and die before it could say so."""
    writer = output.open(sink, 1)

    def lost_attempt() -> None:
        (name,) = database.run(
            "SELECT tablename::text FROM pg_tables WHERE tablename LIKE 'penstock_stage%'"
        )[0]
        database.run(f"INSERT INTO {name} VALUES (-1, 5, 'twice', 5), (-1, 6, 'twice', 6)")

    with meanwhile(monkeypatch, module, "sink.postgres.rows", lost_attempt):
        writer.write(output.frame(sales(0)), number(0))
    assert database.rows() == plain(sales(0))


def test_a_server_that_forgot_the_stage_is_noticed(
    output: Bench, sink: PostgresSink, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the server empties tables without a log."""
    writer = output.open(sink, 1)

    def forget() -> None:
        (name,) = database.run(
            "SELECT tablename::text FROM pg_tables WHERE tablename LIKE 'penstock_stage%'"
        )[0]
        database.run(f"TRUNCATE {name}")

    with (
        meanwhile(monkeypatch, module, "sink.postgres.rows", forget),
        pytest.raises(TransientError, match="restarted"),
    ):
        writer.write(output.frame(sales(0)), number(0))
    assert database.rows() == []
    writer.write(output.frame(sales(0)), number(0))
    assert database.rows() == plain(sales(0))


def test_a_lost_answer_to_the_commit_is_no_second_batch(
    output: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE plain_sales (id bigint, city text, amount bigint)")
    writer = output.open(PostgresSink(database.url, "plain_sales"), 1)

    def lose() -> None:
        raise TransientError("the connection is gone")

    with meanwhile(monkeypatch, module, "sink.postgres.committed", lose), pytest.raises(TransientError):
        writer.write(output.frame(sales(0)), number(0))
    writer.write(output.frame(sales(0)), number(0))
    assert database.rows("plain_sales") == plain(sales(0))


def test_a_stage_that_is_in_use_does_not_hold_up_the_next_owner(
    output: Bench, sink: PostgresSink, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DROP_SECONDS", 0.1)
    writer = output.open(sink, 1)
    with crash_at(monkeypatch, module, "sink.postgres.stage"):
        writer.write(output.frame(sales(0)), number(0))
    (name,) = database.run(STAGES)[0]
    with psycopg.connect(database.url) as zombie:
        zombie.execute(f"LOCK TABLE {name} IN ROW EXCLUSIVE MODE".encode())
        output.open(sink, 2).write(output.frame(sales(0)), number(0))
        assert database.stages() == 1
    output.open(sink, 3)
    assert database.stages() == 0
    assert database.rows() == plain(sales(0))


def test_stages_of_other_outputs_are_left_alone(
    output: Bench, sink: PostgresSink, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = output.open(sink, 1, output="other")
    with crash_at(monkeypatch, module, "sink.postgres.rows"):
        other.write(output.frame(sales(0)), number(0))
    output.open(sink, 2)
    assert database.stages() == 1


def test_outputs_that_share_a_table_have_their_own_progress(
    output: Bench, sink: PostgresSink, database: Database
) -> None:
    output.open(sink, 1).write(output.frame(sales(0)), number(0))
    output.open(sink, 1, output="other").write(output.frame(sales(1)), number(0))
    assert database.rows() == plain(sales(0) + sales(1))


def test_a_gap_is_noticed(output: Bench, sink: PostgresSink) -> None:
    writer = output.open(sink, 1)
    writer.write(output.frame(sales(0)), number(0))
    with pytest.raises(StreamMismatch, match="gap"):
        writer.write(output.frame(sales(2)), number(2))
    with pytest.raises(StreamMismatch, match="nothing of epoch 9"):
        writer.write(output.frame(sales(0)), number(0, epoch=9))


class Everything(Table):
    key: int
    ratio: float
    money: Annotated[Decimal, Precision(38, 10)]
    text: str | None
    raw: bytes | None
    flag: bool
    day: date
    at: datetime
    numbers: list[int]
    sale: Sale | None


def everything(key: int) -> tuple[Any, ...]:
    return (
        key,
        [0.1, math.inf, -math.inf, 1e-300][key % 4],
        Decimal(["0.0000000001", "-9999999999999999999999999999.5", "0"][key % 3]),
        [None, "", 'quote " comma , line\n\\.\n end', "ü€😀\\N"][key % 4],
        [None, b"", b"\x00\xff\\"][key % 3],
        key % 2 == 0,
        [date(1, 1, 1), date(9999, 12, 31)][key % 2],
        [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 1, 2, 3, 4, tzinfo=UTC)][key % 2],
        list(range(key % 3)),
        None if key % 2 else {"id": key, "city": 'a"b', "amount": None},
    )


def test_every_type_arrives_as_it_was(updating: Bench, database: Database) -> None:
    sink = PostgresSink(database.url, "everything", keys=("key",), create=True)
    wanted = [everything(key) for key in range(12)]
    writer = updating.open(sink, 1, table=Everything, keys=("key",))
    writer.write(updating.frame(wanted, Everything), number(0))
    text = (
        "SELECT key, ratio, money, text, raw, flag, day, at AT TIME ZONE 'UTC', numbers, sale FROM everything"
    )
    found = [(*row[:7], row[7].replace(tzinfo=UTC), *row[8:]) for row in database.run(f"{text} ORDER BY key")]
    assert found == wanted
    types = (
        "SELECT pg_typeof(money)::text, pg_typeof(at)::text, pg_typeof(sale)::text FROM everything LIMIT 1"
    )
    assert database.run(types) == [("numeric", "timestamp with time zone", "jsonb")]


def test_columns_of_the_tables_own_keep_their_defaults(output: Bench, database: Database) -> None:
    database.run(f"CREATE TABLE wide ({COLUMNS}, made timestamptz NOT NULL DEFAULT now(), kind uuid)")
    output.open(PostgresSink(database.url, "wide"), 1).write(output.frame(sales(0)), number(0))
    assert database.run("SELECT count(made), count(kind) FROM wide") == [(10, 0)]


def test_a_table_that_does_not_fit_is_refused(output: Bench, database: Database) -> None:
    database.run("CREATE TABLE wrong (id text, amount bigint)")
    with pytest.raises(StreamMismatch, match="no column city; id is text there and int64 here"):
        output.open(PostgresSink(database.url, "wrong"), 1)
    with pytest.raises(UsageError, match=r"there is no table nowhere(.|\n)*create=True"):
        output.open(PostgresSink(database.url, "nowhere"), 1)
    assert database.run("SELECT to_regclass('penstock_progress')") == [(None,)]


def test_keys_need_an_index_and_values(output: Bench, updating: Bench, database: Database) -> None:
    database.run("CREATE TABLE bare (id bigint, city text, amount bigint)")
    with pytest.raises(
        UsageError, match=r'no unique index(.|\n)*CREATE UNIQUE INDEX ON ".*"\."bare" \("id"\)'
    ):
        updating.open(PostgresSink(database.url, "bare"), 1)
    for index in ("(id, city)", "(id) WHERE amount > 0", "((id + 1))"):
        database.run(f"CREATE UNIQUE INDEX ON bare {index}")
    with pytest.raises(UsageError, match="no unique index"):
        updating.open(PostgresSink(database.url, "bare"), 1)
    with pytest.raises(UsageError, match="may be null"):
        updating.open(PostgresSink(database.url, "bare", keys=("amount",)), 1)
    with pytest.raises(UsageError, match="no field"):
        updating.open(PostgresSink(database.url, "bare", keys=("nothing",)), 1)
    with pytest.raises(UsageError, match="which fields identify"):
        output.open(PostgresSink(database.url, "bare"), 1, mode="update")


def test_rights_that_are_missing_are_named(updating: Bench, database: Database) -> None:
    user = f"u{secrets.token_hex(4)}"
    database.run(f"CREATE ROLE {user} LOGIN")
    database.run(f"GRANT USAGE ON SCHEMA {database.schema} TO {user}")
    database.run(f"GRANT SELECT, INSERT ON sales TO {user}")
    sink = PostgresSink(database.url.replace("penstock@", f"{user}@"), "sales")
    with pytest.raises(UsageError, match="lacks UPDATE"):
        updating.open(sink, 1)
    database.run(f"GRANT UPDATE ON sales TO {user}")
    with pytest.raises(UsageError, match="GRANT CREATE ON SCHEMA"):
        updating.open(sink, 1)
    database.run(f"GRANT CREATE ON SCHEMA {database.schema} TO {user}")
    updating.open(sink, 1).write(updating.frame(sales(0)), number(0))
    assert database.rows() == plain(sales(0))
    database.run(f"DROP OWNED BY {user}")
    database.run(f"DROP ROLE {user}")


def test_rows_that_the_server_refuses_fail_the_whole_batch(
    output: Bench, sink: PostgresSink, database: Database, spark: SparkSession
) -> None:
    writer = output.open(sink, 1)
    with pytest.raises(StreamError, match=r"out of range for type integer, column amount, row \d+ of"):
        writer.write(output.frame([*sales(0), (77, "a", 2**40)]), number(0))
    with pytest.raises(StreamError, match="duplicate key"):
        writer.write(output.frame([(1, "a", 1), (1, "b", 1)]), number(0))
    with pytest.raises(TypeMismatch):
        writer.write(spark.createDataFrame([("1", "a", 2)], "id string, city string, amount long"), number(0))
    assert (database.rows(), database.stages()) == ([], 0)


def test_passwords_stay_out_of_everything(output: Bench) -> None:
    secret = "s3cr%25et"
    urls = [
        f"postgresql://u:{secret}@127.0.0.1:1/x",
        f"postgresql://u:{secret} x@127.0.0.1:1/x",
        f"postgresql://u:{secret}%ZZ@127.0.0.1/x",
        f"postgresql://u@127.0.0.1:1/x?password={secret}",
    ]
    for url in urls:
        sink = PostgresSink(url, "t")
        with pytest.raises(PenstockError) as caught:
            output.open(sink, 1)
        told = f"{caught.value} {caught.value.__cause__} {sink!r} {sink.describe()}"
        assert "s3cr" not in told
    with pytest.raises(UsageError) as refused:
        PostgresSink(f"host=x password={secret}", "t")
    assert "s3cr" not in str(refused.value)


def test_a_server_that_is_not_there_is_a_passing_fault(output: Bench) -> None:
    with pytest.raises(TransientError, match="postgresql://u@127"):
        output.open(PostgresSink("postgresql://u@127.0.0.1:1/x", "t"), 1)


def test_readers_see_whole_batches_while_they_are_written(
    output: Bench, sink: PostgresSink, database: Database
) -> None:
    writer = output.open(sink, 1)
    done, seen = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            seen.append(len(database.rows()))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for batch in range(5):
            writer.write(output.frame(sales(batch)), number(batch))
    finally:
        done.set()
        reader.join()
    assert seen == sorted(seen)
    assert all(count % 10 == 0 for count in seen)


def test_connections_are_few(output: Bench, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = output.open(PostgresSink(database.url, "sales", connections=2), 1)
    seen: Rows = []

    def look() -> None:
        (name,) = database.run(STAGES)[0]
        seen.extend(database.run(f"SELECT DISTINCT penstock_attempt FROM {name}"))

    with meanwhile(monkeypatch, module, "sink.postgres.rows", look):
        writer.write(output.frame(sales(0, 100)).repartition(16), number(0))
    assert len(seen) == 2
    assert len(database.rows()) == 100


def test_a_crash_of_the_server_loses_nothing(output: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage has no log, and so is empty when the server comes back."""
    try:
        server = Postgres(["fsync=off"])
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        with psycopg.connect(server.url) as connection:
            connection.execute(f"CREATE TABLE sales ({COLUMNS})".encode())
        writer = output.open(PostgresSink(server.url, "sales"), 1)

        def restart() -> None:
            server._run(server._ctl, "-D", server._data, "-w", "-m", "immediate", "restart")

        with meanwhile(monkeypatch, module, "sink.postgres.rows", restart), pytest.raises(TransientError):
            writer.write(output.frame(sales(0)), number(0))
        writer.write(output.frame(sales(0)), number(0))
        with psycopg.connect(server.url) as connection:
            assert plain(connection.execute("SELECT * FROM sales").fetchall()) == plain(sales(0))


def test_it_is_described_without_its_password() -> None:
    sink = PostgresSink("postgresql://u:secret@h/d", "t", keys=("a", "b"))
    assert sink.describe() == {
        "kind": "postgres",
        "url": "postgresql://u:***@h/d",
        "table": "t",
        "keys": "a, b",
    }
    assert sink.exactly_once

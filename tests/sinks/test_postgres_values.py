"""Values that PostgreSQL cannot hold and logins that it refuses are final errors that say what and where."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pytest

from penstock.errors import StreamError, UsageError
from penstock.sinks.postgres.sink import PostgresSink
from penstock.sinks.postgres.texts import check_texts
from penstock.types.tables import Precision, Table
from servers.packages import Missing
from servers.postgres import Postgres
from tests.sinks.databases import Database
from tests.sinks.support import Bench, number, sales

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_UTF8 = pa.array([b"fine", b"\xff\xfe"]).view(pa.string())


class Amount(Table):
    id: int
    money: Annotated[Decimal, Precision(20, 2)]
    tags: list[str]


class Day(Table):
    at: date


class Moment(Table):
    at: datetime


def test_a_nul_character_is_refused_with_its_row_and_column(output: Bench, database: Database) -> None:
    writer = output.open(PostgresSink(database.url, "sales"), 1)
    with pytest.raises(StreamError, match=r"city has a NUL character.* in the row id = 77(.|\n)*replace"):
        writer.write(output.frame([*sales(0), (77, "a\0b", 2)]), number(0))
    assert (database.rows(), database.stages()) == ([], 0)


def test_bytes_that_are_not_utf8_are_refused_with_their_row_and_column(
    output: Bench, database: Database, spark: SparkSession
) -> None:
    writer = output.open(PostgresSink(database.url, "sales"), 1)
    rows = spark.sql("SELECT 5L AS id, cast(unhex('61FF') AS string) AS city, 1L AS amount")
    with pytest.raises(StreamError, match=r"city has bytes that are not UTF-8.* id = 5"):
        writer.write(rows, number(0))


@pytest.mark.parametrize(
    ("city", "keys", "told"),
    [
        (pa.array(["a", "b\0"]), (), "id = 2"),
        (pa.array(["a", "b\0"]), ("city",), r"city = b\\0"),
        (NOT_UTF8, ("city",), r"city = \?"),
        (pa.array(["a", "b\0"], pa.large_string()), (), "id = 2"),
    ],
)
def test_a_row_is_named_by_what_tells_it_apart(city: pa.Array, keys: tuple[str, ...], told: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), city], ["id", "city"])
    with pytest.raises(StreamError, match=told):
        check_texts(batch, keys)


def test_a_row_of_texts_alone_is_named_by_its_number() -> None:
    with pytest.raises(StreamError, match="row 2 of 2"):
        check_texts(pa.RecordBatch.from_arrays([pa.array(["a", "\0"])], ["city"]), ())


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ((1, Decimal("123456789.00"), []), "numeric field overflow, column money, row 1 of its task"),
        (
            (1, Decimal("1.00"), ["a\0b"]),
            "unsupported Unicode escape sequence, column tags, row 1 of",
        ),
    ],
)
def test_values_that_the_server_refuses_are_final_and_named(
    output: Bench, database: Database, row: tuple[Any, ...], told: str
) -> None:
    database.run("CREATE TABLE amounts (id bigint, money numeric(6, 2), tags jsonb)")
    writer = output.open(PostgresSink(database.url, "amounts"), 1, table=Amount)
    with pytest.raises(StreamError, match=told):
        writer.write(output.frame([row], Amount), number(0))


@pytest.mark.parametrize(
    ("moment", "table"),
    [("DATE'-10000-01-01'", Day), ("TIMESTAMP'-10000-01-01 00:00:00'", Moment)],
)
def test_times_out_of_range_are_final(
    output: Bench, database: Database, spark: SparkSession, moment: str, table: type[Table]
) -> None:
    writer = output.open(PostgresSink(database.url, "moments", create=True), 1, table=table)
    with pytest.raises(StreamError, match="column at"):
        writer.write(spark.sql(f"SELECT {moment} AS at"), number(0))


def test_a_login_that_is_refused_is_no_passing_fault(output: Bench, postgres: str) -> None:
    with pytest.raises(UsageError, match=r"nobody(.|\n)*user, password or database"):
        output.open(PostgresSink(postgres.replace("penstock@", "nobody@"), "t"), 1)
    with pytest.raises(UsageError, match="does not exist"):
        output.open(PostgresSink(f"{postgres}x", "t"), 1)


def test_a_wrong_password_is_no_passing_fault(output: Bench) -> None:
    try:
        server = Postgres()
    except Missing as missing:
        pytest.skip(str(missing))
    with server:
        Database(server.url).run("ALTER ROLE penstock PASSWORD 'right'")
        server.demand_passwords()
        with pytest.raises(UsageError, match="password"):
            output.open(PostgresSink(server.url.replace("penstock@", "penstock:wrong@"), "t"), 1)
        with pytest.raises(UsageError, match="there is no table t"):
            output.open(PostgresSink(server.url.replace("penstock@", "penstock:right@"), "t"), 1)

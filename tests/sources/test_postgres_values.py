"""Values of PostgreSQL as fields of a table, and tables that cannot be read."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import pytest

from penstock.errors import InputError, NullInField, TypeMismatch
from penstock.types.tables import Precision, Table, Timestamp
from servers.postgres import Postgres
from tests.sources.postgres_tables import drain, fill, ids, new_table, only

if TYPE_CHECKING:
    import psycopg

pytestmark = pytest.mark.usefixtures("postgres_parts")


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


def test_times_without_a_zone_mean_what_the_table_says(server: Postgres, db: psycopg.Connection[Any]) -> None:
    class Plain(Table):
        id: int
        at: datetime

    class Berlin(Table):
        id: int
        at: Annotated[datetime, Timestamp(zone="Europe/Berlin")]

    class Naive(Table):
        id: int
        at: Annotated[datetime, Timestamp(naive=True)]

    name = new_table(db, "id bigserial PRIMARY KEY, at timestamp NOT NULL")
    db.execute(f"INSERT INTO {name} (at) VALUES ('2026-07-01 12:00:00')")
    with pytest.raises(TypeMismatch, match=r"next: say what its times mean: .*Timestamp\(zone="):
        only(server, name, Plain).poll(1)
    assert drain(only(server, name, Berlin))[0]["at"] == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert drain(only(server, name, Naive))[0]["at"] == datetime(2026, 7, 1, 12)
    db.execute(f"INSERT INTO {name} (at) VALUES ('2026-10-25 02:30:00')")
    with pytest.raises(InputError, match="ambiguous"):
        drain(only(server, name, Berlin))

"""Times without a zone: taken as UTC, as local times of a place, or as they stand, as the table says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import pyarrow as pa
import pytest

from penstock import Table, Timestamp
from penstock.errors import BadInput, DefinitionError, TypeMismatch, UnknownType
from tests.batch.inputs.support import Place, save

NOON = datetime(2026, 7, 1, 12)


class Plain(Table):
    at: datetime


class Berlin(Table):
    at: Annotated[datetime | None, Timestamp(zone="Europe/Berlin")]


class Naive(Table):
    at: Annotated[datetime, Timestamp(naive=True)]


def read(place: Place, name: str, table: type[Table], *times: Any) -> list[Any]:
    """The times as they come out of a file that has them, as datetimes or texts."""
    path = place.data / name
    if path.suffix == ".jsonl":
        path.write_text("".join(f'{{"at":"{each}"}}\n' for each in times))
    elif path.suffix == ".csv":
        path.write_text("at\n" + "".join(f"{each}\n" for each in times))
    else:
        kind = pa.timestamp("us", "UTC" if times[0].tzinfo else None)
        save(pa.table({"at": pa.array(times, kind)}), path)
    made = place.register(path, f"{table.__table_name__}-{name}", table_schema=table.input_schema())
    found: list[Any] = place.read(made)["at"].to_pylist()
    return found


@pytest.mark.parametrize("file", ["x.parquet", "x.arrow", "x.csv", "x.jsonl"])
def test_a_time_without_a_zone_means_what_the_table_says(place: Place, file: str) -> None:
    noon = NOON if file in ("x.parquet", "x.arrow") else "2026-07-01T12:00:00"
    assert read(place, file, Plain, noon) == [NOON.replace(tzinfo=UTC)]
    assert read(place, file, Berlin, noon) == [datetime(2026, 7, 1, 10, tzinfo=UTC)]
    assert read(place, file, Naive, noon) == [NOON]


@pytest.mark.parametrize("file", ["x.parquet", "x.arrow", "x.csv", "x.jsonl"])
def test_a_time_that_has_a_zone_keeps_it(place: Place, file: str) -> None:
    noon = NOON.replace(tzinfo=UTC) if file in ("x.parquet", "x.arrow") else "2026-07-01T12:00:00Z"
    assert read(place, file, Plain, noon) == read(place, file, Berlin, noon) == [NOON.replace(tzinfo=UTC)]
    with pytest.raises((BadInput, TypeMismatch), match="timestamp"):
        read(place, file, Naive, noon)


def test_some_texts_may_say_a_zone_and_others_not(place: Place) -> None:
    texts = ["2026-07-01T12:00:00", "2026-07-01T12:00:00+05:30", "2026-07-01 12:00:00Z", "2026-07-01"]
    assert read(place, "x.jsonl", Berlin, *texts) == [
        datetime(2026, 7, 1, 10, tzinfo=UTC),
        datetime(2026, 7, 1, 6, 30, tzinfo=UTC),
        datetime(2026, 7, 1, 12, tzinfo=UTC),
        datetime(2026, 6, 30, 22, tzinfo=UTC),
    ]


@pytest.mark.parametrize("time", [datetime(2026, 10, 25, 2, 30), datetime(2026, 3, 29, 2, 30)])
def test_a_time_that_was_twice_or_never_is_not_guessed(place: Place, time: datetime) -> None:
    with pytest.raises(BadInput, match=r"Europe/Berlin(.|\n)*next: declare the field with Timestamp\(naive"):
        read(place, "x.parquet", Berlin, time)


def test_another_zone_is_another_input_and_another_schema(place: Place) -> None:
    class Tokyo(Table, name="berlin"):
        at: Annotated[datetime | None, Timestamp(zone="Asia/Tokyo")]

    assert Tokyo.schema_id() != Berlin.schema_id()
    path = save(pa.table({"at": pa.array([NOON], pa.timestamp("us"))}), place.data / "x.parquet")
    here = place.register(path, "here", table_schema=Berlin.input_schema())
    there = place.register(path, "there", table_schema=Tokyo.input_schema())
    assert here.digest != there.digest
    assert place.read(here)["at"].to_pylist() != place.read(there)["at"].to_pylist()


def test_what_a_timestamp_cannot_be() -> None:
    with pytest.raises(DefinitionError, match="there is no such time zone"):
        Timestamp(zone="Europe/Atlantis")
    with pytest.raises(DefinitionError, match="a time without a zone has none"):
        Timestamp(zone="UTC", naive=True)
    with pytest.raises(UnknownType, match="Timestamp describes datetime, not"):

        class Wrong(Table):
            at: Annotated[int, Timestamp(naive=True)]

    with pytest.raises(UnknownType, match="inside a nested value"):

        class Outer(Table):
            inner: Berlin

"""How row files are shared out and read, without Spark."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptFile, UsageError
from penstock.storage import FileRecord
from penstock.streams.log import row_files, schemas
from penstock.streams.log.row_files import WantedRows, balanced, gathered
from penstock.streams.log.schemas import END_OF_TIME, end_row
from penstock.streams.log.source_options import ReadOptions
from penstock.streams.model import RowFile
from penstock.streams.place import Place
from penstock.types.spark import arrow_schema, spark_schema
from penstock.types.tables import Precision, Table
from tests.streams.log.support import SCHEMA, Made

MEGABYTE = 1 << 20


def file(number: int, size: int, source: str = "numbers") -> RowFile:
    return RowFile(source, FileRecord(f"{number:06}", 1, size, ""))


@settings(deadline=None)
@given(st.lists(st.integers(1, 50 * MEGABYTE), max_size=60), st.integers(1, 9))
def test_files_are_shared_out_evenly_and_in_order(sizes: list[int], most: int) -> None:
    files = [file(number, size) for number, size in enumerate(sizes)]
    heaps = balanced(files, most)
    assert sorted(each.record.path for heap in heaps for each in heap) == [f.record.path for f in files]
    assert len(heaps) <= most
    assert all(list(heap) == sorted(heap, key=lambda each: each.record.path) for heap in heaps)
    weights = [sum(each.record.bytes for each in heap) for heap in heaps]
    if weights:
        assert max(weights) - min(weights) <= max(sizes)


def test_little_is_read_by_one_task() -> None:
    assert len(balanced([file(n, 1000) for n in range(100)], 8)) == 1
    assert len(balanced([file(n, MEGABYTE) for n in range(3)], 8)) == 3
    assert balanced([], 8) == []


@given(st.lists(st.integers(0, 40_000), max_size=30))
@settings(deadline=None)
def test_short_batches_are_joined(sizes: list[int]) -> None:
    batches = [pa.RecordBatch.from_pydict({"n": pa.array(range(size), pa.int64())}) for size in sizes]
    found = list(gathered(iter(batches)))
    assert pa.Table.from_batches(found, pa.schema([("n", pa.int64())])) == pa.Table.from_batches(
        batches, pa.schema([("n", pa.int64())])
    )
    assert all(batch.num_rows >= 1 << 14 for batch in found[:-1])


@given(st.lists(st.lists(st.sampled_from(["a", "b", None]), max_size=20), max_size=6), st.integers(1, 40))
@settings(deadline=None)
def test_rows_are_counted_whatever_is_seen_at_a_time(words: list[list[str | None]], at_once: int) -> None:
    batches = [pa.RecordBatch.from_pydict({"word": pa.array(each, pa.string())}) for each in words]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(row_files, "_COUNTED_ROWS", at_once)
        found = [row for batch in row_files.counted(iter(batches), "n") for row in batch.to_pylist()]
    total: Counter[str | None] = Counter()
    for row in found:
        total[row["word"]] += row["n"]
    assert total == Counter(word for each in words for word in each)


@pytest.mark.parametrize(
    ("values", "groups"),
    [
        ([1.5, None, 1.5, float("nan"), float("nan")], 3),
        ([Decimal("1.10"), Decimal("1.10"), Decimal("1.1"), None], 2),
        ([datetime(2026, 1, 1, tzinfo=UTC)] * 3, 1),
        ([b"", b"\0", None, b""], 3),
        ([True, None, True, False], 3),
    ],
)
def test_keys_of_every_kind_are_counted(values: list[object], groups: int) -> None:
    batch = pa.RecordBatch.from_pydict({"key": pa.array(values), "other": pa.array(["x"] * len(values))})
    found = pa.Table.from_batches(row_files.counted(iter([batch, batch]), "n"))
    assert found.num_rows == groups
    assert sum(found["n"].to_pylist()) == 2 * len(values)
    assert found.schema.field("key").type == batch.schema.field("key").type


def test_the_rows_of_a_source_with_some_columns(made: Made) -> None:
    files = [
        made.file(1, "numbers", 5, batch=2),
        made.file(1, "others", 3),
        made.file(1, "numbers", 2, late=True),
    ]
    brought = [made.portion(1, files)]
    for wanted, keys in (
        (WantedRows("numbers", ("key",)), range(5)),
        (WantedRows("others", ("key",)), range(5, 8)),
        (WantedRows("numbers", ("key",), late=True), range(8, 10)),
        (WantedRows("nothing", ("key",)), range(0)),
    ):
        batches = list(wanted.batches(made.storage, wanted.files(made.storage, brought)))
        assert [key for batch in batches for key in batch["key"].to_pylist()] == list(keys)
        assert all(batch.schema.names == ["key"] for batch in batches)


def test_a_row_file_that_is_missing_or_torn_is_named(made: Made) -> None:
    torn, missing, short = (made.file(1, "numbers", 5) for _ in range(3))
    made.storage.write(torn.record.path, made.storage.read(torn.record.path)[:200])
    made.storage.delete(missing.record.path)
    made.storage.write(short.record.path, made.storage.read(made.file(1, "numbers", 4).record.path))
    for broken in (torn, missing, short):
        with pytest.raises(CorruptFile, match=broken.record.path):
            list(WantedRows("numbers", ("key",)).batches(made.storage, [broken]))


# schemas


class Inner(Table):
    size: int
    note: str | None


class Everything(Table):
    number: int
    share: float
    text: str
    data: bytes
    flag: bool
    at: datetime
    amount: Annotated[Decimal, Precision(5, 4)]
    many: list[str]
    inner: Inner
    nothing: str | None


def test_schemas_come_back_from_spark() -> None:
    schema = Everything.arrow_schema()
    assert arrow_schema(spark_schema(schema)) == schema
    decoded = schemas.decode(schemas.encode(schema), None)
    assert decoded == spark_schema(schema)
    some = schemas.decode(schemas.encode(schema), ["text", "number"])
    assert not isinstance(some, str)
    assert some.names == ["number", "text"]
    assert schemas.decode("number bigint", None) == "number bigint"


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="there is no column wrong"):
        schemas.decode(schemas.encode(SCHEMA), ["key", "wrong"])


def test_the_row_at_the_end_fits_every_type() -> None:
    row = end_row(Everything.arrow_schema(), "at")
    assert row.schema == Everything.arrow_schema()
    row.validate(full=True)
    (found,) = row.to_pylist()
    assert found["at"] == END_OF_TIME
    assert (found["number"], found["text"], found["nothing"], found["many"]) == (0, "", None, [])
    assert found["inner"] == {"size": 0, "note": None}


# options


def test_options_travel_as_texts() -> None:
    place = Place("sqlite:////s.db", "/data", "ticks", "0a1b")
    options = ReadOptions(place, "numbers", True, "at", "copy", "/r.json", 3, 10, 2, 0.25, 7, 60.0)
    assert ReadOptions.parse(options.to_options()) == options
    counting = ReadOptions(place, "numbers", counted=("a", 'b"'))
    assert ReadOptions.parse(counting.to_options()) == counting
    assert ReadOptions.parse(ReadOptions(place, "numbers").to_options()) == ReadOptions(place, "numbers")
    lower = {name.lower(): text for name, text in options.to_options().items()}
    assert ReadOptions.parse(lower) == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sourse": "numbers"}, "unknown option sourse"),
        ({"source": "numbers"}, "option place is missing"),
        ({"rowsPerBatch": "none"}, "option rowsPerBatch = 'none'"),
        ({"epochsPerBatch": "0"}, "must be at least 1"),
        ({"late": "perhaps"}, "must be true or false"),
        ({"place": "nowhere"}, "is not the place of a stream"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ReadOptions.parse(options)

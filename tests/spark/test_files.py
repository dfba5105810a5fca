"""Writing flows to files on the executors, and reading them back."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import CorruptFile, NullInField, StorageFull, TransformFailed, WorkerLost
from penstock.spark import files, jvm_parquet
from penstock.spark.flow import Batches, Flow, Scan
from penstock.storage import FileRecord, Storage
from penstock.types.tables import Precision, Table
from tests.storage.test_storage import tiny_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Part(Table):
    city: str
    code: int | None


class Everything(Table):
    key: int
    ratio: float
    money: Annotated[Decimal, Precision(38, 6)]
    text: str | None
    raw: bytes
    flag: bool
    day: date
    at: datetime
    numbers: list[int]
    words: list[str | None]
    part: Part
    parts: list[Part] | None


def example(key: int) -> dict[str, Any]:
    return {
        "key": key,
        "ratio": [0.1, -0.0, math.inf, 1e-300, 5.0][key % 5],
        "money": Decimal(f"{key}99999999999999999999999999.123456"),
        "text": [None, "", "ü€😀", "line\nbreak"][key % 4],
        "raw": bytes([key % 256, 0, 255]),
        "flag": key % 2 == 0,
        "day": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)][key % 3],
        "at": [
            datetime(1, 1, 2, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(9999, 12, 30, 1, 2, 3, 4, tzinfo=UTC),
        ][key % 3],
        "numbers": list(range(key % 4)),
        "words": ["a", None, ""][: key % 4],
        "part": {"city": "Z", "code": None if key % 2 else key},
        "parts": None if key % 3 == 0 else [{"city": str(n), "code": n} for n in range(key % 3)],
    }


ROWS = 50
SCHEMA = Everything.arrow_schema()
TABLE = pa.Table.from_pylist([example(key) for key in range(ROWS)], schema=SCHEMA)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "files")


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    made = spark.createDataFrame(TABLE.to_pylist(), Everything.spark_schema()).repartition(2, "key").cache()
    yield made
    made.unpersist()


def flow_of(frame: DataFrame, schema: pa.Schema = SCHEMA) -> Flow:
    return Flow("everything", frame, schema)


def loaded(storage: Storage, record: FileRecord) -> pa.Table:
    with storage.open(record.path) as file:
        if record.path.endswith(".parquet"):
            return pq.read_table(file).cast(SCHEMA)
        return pa.ipc.open_file(file).read_all()


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.sort_by("key").to_pylist()
    return rows


@dataclass(frozen=True)
class Same:
    """A step: with it, the rows are in a Python worker when they are written."""

    def __call__(self, batches: Batches) -> Batches:
        yield from batches


@pytest.mark.parametrize(
    ("form", "compression", "in_worker"),
    [
        ("arrow", "none", False),
        ("arrow", "zstd", True),
        ("parquet", "lz4", True),
        ("parquet", "lz4", False),
    ],
)
def test_every_type_comes_back_as_it_was(
    spark: SparkSession, frame: DataFrame, storage: Storage, form: Any, compression: Any, in_worker: bool
) -> None:
    flow = flow_of(frame)
    if in_worker:
        flow = flow.then(Same(), SCHEMA)
    records = files.write(spark, flow, storage, "out/t", format=form, compression=compression)
    assert sum(r.rows for r in records) == ROWS
    assert len(records) == 2
    parts = [loaded(storage, record) for record in records]
    assert [p.num_rows for p in parts] == [r.rows for r in records]
    assert sorted_rows(pa.concat_tables(parts)) == TABLE.to_pylist()
    files.verify(spark, storage, records)
    for record in records:
        assert record.path.startswith("out/t/part-")
        storage.check(record)


def test_a_written_flow_is_read_as_a_flow(spark: SparkSession, frame: DataFrame, storage: Storage) -> None:
    records = files.write(spark, flow_of(frame), storage, "t", format="arrow")
    flow = files.read(storage, "everything", SCHEMA, records)
    assert flow.kept == tuple(records)
    back = flow.frame(spark)
    assert {f.name: f.dataType for f in back.schema} == {
        f.name: f.dataType for f in Everything.spark_schema()
    }
    assert sorted_rows(back.toArrow().cast(SCHEMA)) == TABLE.to_pylist()
    again = files.write(spark, flow, storage, "again", format="arrow")
    assert [r.rows for r in again] == [r.rows for r in records]


def test_only_the_wanted_columns_are_read(spark: SparkSession, frame: DataFrame, storage: Storage) -> None:
    records = files.write(spark, flow_of(frame), storage, "t", format="arrow", compression="none")
    flow = files.read(storage, "everything", SCHEMA, records).select(["flag", "key"])
    assert isinstance(flow.origin, Scan)
    split = flow.origin.splits()[0]
    first = next(split.batches())
    assert first.schema.names == ["key", "flag"]
    assert split.rows == records[0].rows
    assert flow.frame(spark).columns == ["key", "flag"]


def test_only_listed_files_count(spark: SparkSession, frame: DataFrame, storage: Storage) -> None:
    records = files.write(spark, flow_of(frame), storage, "t", format="arrow")
    storage.write("t/part-00000-99999.arrow", storage.read(records[0].path))
    storage.write("t/.part-00001.tmp", b"rubbish")
    assert files.read(storage, "everything", SCHEMA, records).frame(spark).count() == ROWS
    fewer = files.read(storage, "everything", SCHEMA, records[1:]).frame(spark).count()
    assert fewer == ROWS - records[0].rows


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_partitions_without_rows_leave_no_file_in_the_list(
    spark: SparkSession, frame: DataFrame, storage: Storage, form: Any
) -> None:
    one = files.write(spark, flow_of(frame.where("key = 7")), storage, "one", format=form)
    assert [r.rows for r in one] == [1]
    assert files.write(spark, flow_of(frame.where("key < 0")), storage, "none", format=form) == ()
    assert files.read(storage, "everything", SCHEMA, ()).frame(spark).collect() == []
    files.verify(spark, storage, ())


def test_row_order_is_kept(spark: SparkSession, storage: Storage) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    for form in ("arrow", "parquet"):
        records = files.write(
            spark, Flow("t", spark.range(0, 100, 1, 12), schema), storage, form, format=form
        )
        got = []
        for record in records:
            with storage.open(record.path) as file:
                table = pa.ipc.open_file(file).read_all() if form == "arrow" else pq.read_table(file)
            got += table["id"].to_pylist()
        assert got == list(range(100)), form


def test_verify_finds_damage(spark: SparkSession, frame: DataFrame, storage: Storage) -> None:
    records = files.write(spark, flow_of(frame), storage, "t", format="arrow")
    path = Path(storage.location(records[1].path))
    data = path.read_bytes()
    for damaged, said in (
        (data[:-1] + bytes([data[-1] ^ 1]), "does not match its checksum"),
        (data[:-1], f"has {len(data) - 1} bytes, not {len(data)}"),
        (None, "is missing"),
    ):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(CorruptFile, match=f"{path.name} {said}"):
            files.verify(spark, storage, records)


def test_reading_damage_is_an_error_too(storage: Storage) -> None:
    with storage.create("a") as sink, pa.ipc.new_file(pa.PythonFile(sink, mode="w"), SCHEMA) as writer:
        writer.write_table(TABLE)
    columns = tuple(SCHEMA.names)
    good = sink.record("a", ROWS)
    assert sum(b.num_rows for b in files.IpcSplit(storage, good, columns).batches()) == ROWS
    more = FileRecord("a", ROWS + 1, good.bytes, good.sha256)
    with pytest.raises(CorruptFile, match=f"has {ROWS} rows, not {ROWS + 1}"):
        list(files.IpcSplit(storage, more, columns).batches())
    os.truncate(storage.location("a"), good.bytes // 2)
    with pytest.raises(CorruptFile, match="cannot be read"):
        list(files.IpcSplit(storage, good, columns).batches())
    os.truncate(storage.location("a"), 0)
    with pytest.raises(CorruptFile, match="cannot be read"):
        list(files.IpcSplit(storage, good, columns).batches())
    with pytest.raises(CorruptFile, match="cannot be read"):
        list(files.IpcSplit(storage, FileRecord("b", 1, 1, ""), columns).batches())


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_full_disk_is_said_to_be_full(spark: SparkSession, tmp_path: Path, form: Any) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.float64(), nullable=False)]
    )
    flow = Flow("t", spark.range(0, 200_000, 1, 1).selectExpr("id", "rand(7) AS x"), schema)
    with tiny_disk(tmp_path) as place:
        storage = Storage(place)
        with pytest.raises(StorageFull) as caught:
            files.write(spark, flow, storage, "t", format=form, compression="none")
        assert "free some space" in str(caught.value)
        assert not [path for path, _ in storage.list() if path.endswith(f".{form}")]


@dataclass(frozen=True)
class FailAfterOne:
    error: Exception

    def __call__(self, batches: Batches) -> Batches:
        for batch in batches:
            yield batch.slice(0, 1)
            raise self.error


def test_an_error_on_the_way_leaves_no_file(spark: SparkSession, frame: DataFrame, storage: Storage) -> None:
    one = frame.coalesce(1)
    for error, kind in ((ValueError("torn"), TransformFailed), (StorageFull("full"), StorageFull)):
        with pytest.raises(kind, match=r"torn|full"):
            files.write(spark, flow_of(one).then(FailAfterOne(error), SCHEMA), storage, "t", format="arrow")
        assert storage.list() == []


NULLS = {
    "key": ("nullif(key, 3)", r"everything\.key is null"),
    "numbers": ("if(key = 3, array(1, null), numbers)", r"everything\.numbers(\[\])? is null"),
    "part": (
        "if(key = 3, named_struct('city', null, 'code', 1L), part)",
        r"everything\.part(\.city)? is null",
    ),
    "parts": (
        "if(key = 3, array(named_struct('city', null, 'code', 1L)), parts)",
        r"everything\.parts(\[\]\.city)? is null",
    ),
}


@pytest.mark.parametrize(("form", "column"), [("arrow", "key"), *(("parquet", column) for column in NULLS)])
def test_a_null_that_was_not_declared(
    spark: SparkSession, frame: DataFrame, storage: Storage, form: Any, column: str
) -> None:
    expression, said = NULLS[column]
    kind = frame.schema[column].dataType.simpleString()
    damaged = frame.selectExpr(
        *(f"cast({expression} AS {kind}) AS {c}" if c == column else c for c in frame.columns)
    )
    with pytest.raises(NullInField, match=said) as caught:
        files.write(spark, flow_of(damaged), storage, "t", format=form)
    assert "without `| None`" in str(caught.value)


@pytest.mark.parametrize("statistics", [True, False])
def test_a_null_is_found_where_the_footer_does_not_count_them(storage: Storage, statistics: bool) -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"], "c": [None, 1.5, 2.5]})
    with storage.create("t.parquet") as sink:
        pq.write_table(table, pa.PythonFile(sink, mode="w"), write_statistics=statistics)
    assert jvm_parquet._Seal(storage, "t", ("a",))("t.parquet").rows == 3
    with pytest.raises(NullInField, match=r"t\.b is null"):
        jvm_parquet._Seal(storage, "t", ("a", "b"))("t.parquet")


def test_nothing_but_data_lies_beside_the_data(
    spark: SparkSession, frame: DataFrame, storage: Storage
) -> None:
    records = files.write(spark, flow_of(frame), storage, "t", format="parquet")
    assert {path for path, _ in storage.list()} == {record.path for record in records}


def test_only_what_leaves_the_machine_is_compressed(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 50_000, 1, 1).selectExpr("id DIV 1000 AS id")
    flow = Flow("t", frame, pa.schema([pa.field("id", pa.int64())]))

    def written(place: str | Path, compression: Any) -> int:
        records = files.write(spark, flow, Storage(place), "t", format="arrow", compression=compression)
        return sum(r.bytes for r in records)

    plain, packed = written(tmp_path / "plain", "none"), written(tmp_path / "packed", "lz4")
    assert packed < plain / 2
    assert written(tmp_path / "auto", "auto") == plain
    assert files.codec(spark, Storage("s3://bucket/prefix"), "auto") == "lz4"


def test_row_groups_are_larger_than_batches(spark: SparkSession, storage: Storage) -> None:
    frame = spark.range(0, 100_000, 1, 1).mapInArrow(lambda batches: batches, "id long")
    schema = pa.schema([pa.field("id", pa.int64())])
    flow = Flow("t", frame, schema).then(lambda batches: batches, schema)
    (record,) = files.write(spark, flow, storage, "t", format="parquet")
    with storage.open(record.path) as file:
        assert pq.ParquetFile(file).metadata.num_row_groups == 1


def test_columns_are_written_in_declared_order(
    spark: SparkSession, frame: DataFrame, storage: Storage
) -> None:
    shuffled = frame.select(*reversed(frame.columns))
    for form in ("arrow", "parquet"):
        records = files.write(spark, flow_of(shuffled), storage, form, format=form)
        assert loaded(storage, records[0]).schema.names == SCHEMA.names


def test_a_path_with_spaces(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    storage = Storage(tmp_path / "a b%20c")
    for form in ("arrow", "parquet"):
        records = files.write(spark, flow_of(frame.limit(3)), storage, form, format=form)
        assert sum(r.rows for r in records) == 3
        files.verify(spark, storage, records)


def test_a_lost_worker_is_not_a_fault_of_the_transform(
    spark: SparkSession, frame: DataFrame, storage: Storage
) -> None:
    def die(batches: Batches) -> Batches:
        for _ in batches:
            os._exit(7)
        return iter(())

    with pytest.raises(WorkerLost, match="Python worker exited unexpectedly"):
        files.write(spark, flow_of(frame).then(die, SCHEMA), storage, "t", format="arrow")
    assert storage.list() == []

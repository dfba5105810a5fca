"""Parquet with manifests: exactly once, whoever dies where, and readable at every epoch."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from penstock.errors import (
    EpochGone,
    NullInField,
    StaleToken,
    StorageFull,
    StreamError,
    StreamMismatch,
    TypeMismatch,
    UnknownField,
    UsageError,
)
from penstock.sinks.parquet import document, manifests
from penstock.sinks.parquet import sink as module
from penstock.sinks.parquet.manifests import BatchEntry
from penstock.sinks.parquet.sink import ParquetSink
from penstock.sinks.parquet.table import StreamTable
from penstock.storage import FileRecord, Storage
from penstock.store import Store
from penstock.streams.layout import Layout
from penstock.types.tables import Table
from tests.sinks.support import Bench, Rows, Sale, bench, crash_at, meanwhile, number, plain, sales
from tests.storage.test_storage import tiny_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = ["sink.parquet.files", "sink.parquet.manifest", "sink.parquet.folded", "sink.parquet.committed"]


FAN = 3


@pytest.fixture(autouse=True)
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests are folded often."""
    monkeypatch.setattr(manifests, "FAN", FAN)


@pytest.fixture
def table(store: Store, storage: Storage) -> StreamTable:
    return StreamTable(store, storage, "sales", "s1", "out")


def rows(table: StreamTable, spark: SparkSession, epoch: int | None = None) -> Rows:
    return plain(table.frame(spark, epoch).collect())


def arrow_rows(table: StreamTable, epoch: int | None = None) -> Rows:
    """The rows without Spark, as any reader of Parquet would see them."""
    found: Rows = []
    for path in table.paths(epoch):
        found += [tuple(row.values()) for row in pq.read_table(path).to_pylist()]
    return sorted(found)


def sizes(storage: Storage) -> list[str]:
    return [path for path, _ in storage.list("streams")]


def test_batches_are_there_as_they_were_written(
    output: Bench, table: StreamTable, spark: SparkSession
) -> None:
    writer = output.open(ParquetSink(), 1)
    assert (rows(table, spark), table.files(), table.epochs()) == ([], [], range(0))
    for batch in range(3):
        writer.write(output.frame(sales(batch)), number(batch))
    assert rows(table, spark) == arrow_rows(table) == plain(sales(0) + sales(1) + sales(2))
    assert table.schema == Sale.arrow_schema()
    assert sum(file.rows for file in table.files()) == 30
    assert not table.ended


def test_a_repeated_batch_changes_nothing(output: Bench, table: StreamTable, storage: Storage) -> None:
    writer = output.open(ParquetSink(), 1)
    for batch in range(2):
        writer.write(output.frame(sales(batch)), number(batch))
    before = sizes(storage)
    writer.write(output.frame(sales(1)), number(1))
    output.open(ParquetSink(), 2).write(output.frame(sales(1)), number(1))
    assert arrow_rows(table) == plain(sales(0) + sales(1))
    assert sizes(storage) == before


def test_a_repeated_batch_is_computed_all_the_same(output: Bench, spark: SparkSession) -> None:
    """Spark's watermarks and states come from the rows that were computed."""
    writer = output.open(ParquetSink(), 1)
    writer.write(output.frame(sales(0)), number(0))
    seen = spark.sparkContext.accumulator(0)

    def look(batches: Any) -> Any:
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    writer.write(output.frame(sales(0)).mapInArrow(look, Sale.spark_schema()), number(0))
    assert seen.value == 10


def test_a_frame_is_computed_once(output: Bench, spark: SparkSession) -> None:
    seen = spark.sparkContext.accumulator(0)

    def look(batches: Any) -> Any:
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    writer = output.open(ParquetSink(), 1)
    writer.write(output.frame(sales(0)).mapInArrow(look, Sale.spark_schema()), number(0))
    assert seen.value == 10


def test_an_earlier_owner_is_refused(output: Bench, table: StreamTable) -> None:
    earlier = output.open(ParquetSink(), 1)
    earlier.write(output.frame(sales(0)), number(0))
    later = output.open(ParquetSink(), 2)
    with pytest.raises(StaleToken, match="token 2; ours is 1"):
        earlier.write(output.frame(sales(1)), number(1))
    with pytest.raises(StaleToken):
        output.open(ParquetSink(), 1)
    later.write(output.frame(sales(1)), number(1))
    assert arrow_rows(table) == plain(sales(0) + sales(1))


@pytest.mark.parametrize("point", POINTS[:3])
def test_an_owner_that_is_replaced_in_the_middle_of_a_batch_adds_nothing(
    output: Bench, table: StreamTable, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    earlier = output.open(ParquetSink(), 1)
    earlier.write(output.frame(sales(0)), number(0))
    later = []

    def take_over() -> None:
        later.append(output.open(ParquetSink(), 2))
        later[0].write(output.frame(sales(1, 3)), number(1))

    with meanwhile(monkeypatch, module, point, take_over), pytest.raises(StaleToken):
        earlier.write(output.frame(sales(1)), number(1))
    assert arrow_rows(table) == plain(sales(0) + sales(1, 3))


def test_two_attempts_of_one_owner_leave_the_batch_once(
    output: Bench, table: StreamTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = output.open(ParquetSink(), 1), output.open(ParquetSink(), 1)
    with meanwhile(monkeypatch, module, POINTS[2], lambda: other.write(output.frame(sales(0)), number(0))):
        one.write(output.frame(sales(0)), number(0))
    assert arrow_rows(table) == plain(sales(0))


@pytest.mark.parametrize("batch", [1, FAN - 1], ids=["plain", "folding"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_is_mended_by_the_repetition(
    output: Bench, table: StreamTable, monkeypatch: pytest.MonkeyPatch, point: str, batch: int
) -> None:
    writer = output.open(ParquetSink(), 1)
    for n in range(batch):
        writer.write(output.frame(sales(n, 1)), number(n))
    with crash_at(monkeypatch, module, point):
        writer.write(output.frame(sales(batch)), number(batch))
    published = point == POINTS[-1]
    assert len(arrow_rows(table)) == batch + (10 if published else 0)
    after = output.open(ParquetSink(), 2)
    after.write(output.frame(sales(batch)), number(batch))
    after.write(output.frame(sales(batch + 1, 1)), number(batch + 1))
    wanted = [row for n in range(batch) for row in sales(n, 1)] + sales(batch) + sales(batch + 1, 1)
    assert arrow_rows(table) == plain(wanted)
    table.sweep()
    assert arrow_rows(table) == plain(wanted)


@pytest.mark.parametrize("point", POINTS[:3])
def test_the_next_owner_sweeps_what_a_crash_left(
    output: Bench, table: StreamTable, storage: Storage, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    writer = output.open(ParquetSink(), 1)
    writer.write(output.frame(sales(0)), number(0))
    clean = sizes(storage)
    with crash_at(monkeypatch, module, point):
        writer.write(output.frame(sales(1)), number(1))
    assert sizes(storage) != clean
    output.open(ParquetSink(), 2).write(output.frame([]), number(1))
    table.sweep()
    assert sizes(storage) == clean


def test_a_sweep_spares_the_batch_that_is_being_written(
    output: Bench, table: StreamTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = output.open(ParquetSink(), 1)
    for n in range(FAN - 1):
        writer.write(output.frame(sales(n, 1)), number(n))
    for batch, point in zip(range(FAN - 1, FAN + 2), POINTS, strict=False):
        with meanwhile(monkeypatch, module, point, table.sweep):
            writer.write(output.frame(sales(batch, 1)), number(batch))
    assert arrow_rows(table) == plain(row for n in range(FAN + 2) for row in sales(n, 1))


def test_neither_document_nor_a_batch_grows_with_the_history(
    output: Bench, table: StreamTable, store: Store, storage: Storage
) -> None:
    writer = output.open(ParquetSink(), 1)
    assert isinstance(writer, module._ParquetWriter)
    largest = 0
    for n in range(100):
        found = writer._current()
        entry = BatchEntry(n, n, 1, (FileRecord(f"rows/{n}.parquet", 1, 1, "0" * 64),))
        writer._commit(entry, number(n, epoch=n), found)
        value = store.get(document.document_key(Layout("sales", "s1"), "out"))
        assert value is not None
        largest = max(largest, len(value.value))
    assert largest < 2500
    assert len(table.files()) == 100
    assert len(table.files(epoch=40)) == 41


@pytest.mark.parametrize("copied", [4096, 5, 0])
def test_manifests_that_were_folded_are_removed_if_nothing_needs_them(
    output: Bench, table: StreamTable, storage: Storage, monkeypatch: pytest.MonkeyPatch, copied: int
) -> None:
    monkeypatch.setattr(module, "_LINGER", 0.0)
    monkeypatch.setattr(manifests, "COPIED", copied)
    writer = output.open(ParquetSink(), 1)
    for n in range(FAN * FAN + 1):
        writer.write(output.frame(sales(n, 1)), number(n))
    assert arrow_rows(table) == plain(row for n in range(FAN * FAN + 1) for row in sales(n, 1))
    assert table.sweep(dry_run=True).files == 0


def test_at_epoch(output: Bench, table: StreamTable, spark: SparkSession) -> None:
    writer = output.open(ParquetSink(), 1)
    for batch, epoch in enumerate([2, 2, 5, 6]):
        writer.write(output.frame(sales(batch, 2)), number(batch, epoch=epoch))
    upto = {0: 0, 1: 0, 2: 2, 3: 2, 4: 2, 5: 3, 6: 4}
    for epoch, batches in upto.items():
        wanted = [row for n in range(batches) for row in sales(n, 2)]
        assert rows(table, spark, epoch) == plain(wanted)
    assert table.epochs() == range(7)
    for epoch in (7, -1):
        with pytest.raises(UsageError, match="has come to epoch 6"):
            table.files(epoch)


def test_update_gives_the_newest_row_of_each_key(
    store: Store, storage: Storage, table: StreamTable, spark: SparkSession
) -> None:
    output = bench(store, storage, spark, "update")
    writer = output.open(ParquetSink(), 1)
    writer.write(output.frame([(1, "a", 1), (2, "b", 1)]), number(0))
    writer.write(output.frame([(2, "c", None), (3, "d", 2)]), number(1))
    writer.write(output.frame([(1, "e", 3)]), number(2))
    assert rows(table, spark) == [(1, "e", 3), (2, "c", None), (3, "d", 2)]
    assert rows(table, spark, epoch=2) == [(1, "a", 1), (2, "c", None), (3, "d", 2)]
    assert rows(table, spark, epoch=1) == [(1, "a", 1), (2, "b", 1)]
    assert rows(table, spark, epoch=0) == []


def test_update_needs_keys(output: Bench) -> None:
    with pytest.raises(UsageError, match="which fields identify"):
        output.open(ParquetSink(), 1, mode="update")


def test_complete_gives_the_newest_batch_and_keeps_a_few(
    store: Store,
    storage: Storage,
    table: StreamTable,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_LINGER", 0.0)
    output = bench(store, storage, spark, "complete")
    writer = output.open(ParquetSink(keep=2), 1)
    for batch in range(4):
        writer.write(output.frame(sales(batch, batch + 1)), number(batch))
    assert rows(table, spark) == rows(table, spark, 4) == plain(sales(3, 4))
    assert rows(table, spark, 3) == plain(sales(2, 3))
    with pytest.raises(EpochGone, match="epoch 2"):
        table.files(2)
    assert table.epochs() == range(3, 5)
    folders = {path.rpartition("/")[0] for path in sizes(storage) if path.endswith(".parquet")}
    assert len(folders) == 2
    writer.write(output.frame([]), number(4))
    assert rows(table, spark) == []


def test_files_of_replaced_tables_linger_for_readers(
    store: Store, storage: Storage, table: StreamTable, spark: SparkSession
) -> None:
    output = bench(store, storage, spark, "complete")
    writer = output.open(ParquetSink(keep=1), 1)
    writer.write(output.frame(sales(0)), number(0))
    reading = table.frame(spark)
    writer.write(output.frame(sales(1)), number(1))
    assert plain(reading.collect()) == plain(sales(0))


def test_the_end_is_recorded(output: Bench, table: StreamTable) -> None:
    writer = output.open(ParquetSink(), 1)
    writer.write(output.frame(sales(0)), number(0, final=True))
    assert table.ended


def test_a_batch_without_rows_costs_no_file(output: Bench, table: StreamTable, storage: Storage) -> None:
    writer = output.open(ParquetSink(), 1)
    writer.write(output.frame([]), number(0))
    writer.write(output.frame([]), number(0))
    assert sizes(storage) == []
    assert table.epochs() == range(2)
    writer.write(output.frame(sales(1)), number(1))
    assert arrow_rows(table) == plain(sales(1))


def test_a_gap_or_another_checkpoint_is_noticed(output: Bench) -> None:
    writer = output.open(ParquetSink(), 1)
    writer.write(output.frame(sales(0)), number(0))
    with pytest.raises(StreamMismatch, match="gap"):
        writer.write(output.frame(sales(2)), number(2))
    with pytest.raises(StreamMismatch, match="nothing of epoch 9"):
        writer.write(output.frame(sales(0)), number(0, epoch=9))


def test_a_table_of_another_shape_is_refused(output: Bench, table: StreamTable, tmp_path: Path) -> None:
    class Other(Table, name="sale"):
        id: int
        city: str | None
        price: float

    output.open(ParquetSink(), 1).write(output.frame(sales(0)), number(0))
    with pytest.raises(StreamMismatch) as caught:
        output.open(ParquetSink(), 2, table=Other)
    assert "field amount is gone; field price is new; city was string, is string or null" in str(caught.value)
    assert "new name" in str(caught.value)
    with pytest.raises(StreamMismatch, match="mode was append, is complete"):
        output.open(ParquetSink(), 2, mode="complete")
    with pytest.raises(StreamMismatch, match="place was that of the stream"):
        output.open(ParquetSink(str(tmp_path / "elsewhere")), 2)
    # Nobody was fenced by those who were refused.
    output.open(ParquetSink(), 1).write(output.frame(sales(1)), number(1))
    assert len(arrow_rows(table)) == 20


def test_rows_that_do_not_fit_are_refused(output: Bench, table: StreamTable, spark: SparkSession) -> None:
    writer = output.open(ParquetSink(), 1)
    with pytest.raises(UnknownField, match="no column 'city'"):
        writer.write(spark.createDataFrame([(1, 2)], "id long, amount long"), number(0))
    with pytest.raises(TypeMismatch, match="have id as string"):
        writer.write(spark.createDataFrame([("1", "a", 2)], "id string, city string, amount long"), number(0))
    with pytest.raises(NullInField, match=r"sale\.city"):
        writer.write(spark.createDataFrame([(1, None, 2)], "id long, city string, amount long"), number(0))
    assert arrow_rows(table) == []
    writer.write(spark.createDataFrame([("a", 1, 2)], "city string, amount int, id int"), number(0))
    assert arrow_rows(table) == [(2, "a", 1)]


def test_a_location_of_ones_own(output: Bench, table: StreamTable, storage: Storage, tmp_path: Path) -> None:
    place = tmp_path / "lake"
    output.open(ParquetSink(str(place)), 1).write(output.frame(sales(0)), number(0))
    assert arrow_rows(table) == plain(sales(0))
    assert all(path.startswith(str(place)) for path in table.paths())
    assert sizes(storage) == []
    assert ParquetSink(str(place)).describe() == {"kind": "parquet", "location": str(place)}
    assert ParquetSink("s3://key:secret@bucket/x").describe()["location"] == "s3://key:***@bucket/x"


def test_a_location_that_cannot_be_written_is_refused_at_once(output: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written to"):
        output.open(ParquetSink(str(tmp_path / "file" / "below")), 1)


def test_a_full_disk_leaves_nothing_half_done(output: Bench, table: StreamTable, tmp_path: Path) -> None:
    with tiny_disk(tmp_path) as disk:
        writer = output.open(ParquetSink(str(disk)), 1)
        writer.write(output.frame(sales(0)), number(0))
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(StorageFull):
            writer.write(output.frame(sales(1, 1000)), number(1))
        assert arrow_rows(table) == plain(sales(0))
        filler.unlink()
        writer.write(output.frame(sales(1)), number(1))
        assert arrow_rows(table) == plain(sales(0) + sales(1))


def test_a_table_that_was_dropped_is_not_written(output: Bench, store: Store) -> None:
    writer = output.open(ParquetSink(), 1)
    key = document.document_key(Layout("sales", "s1"), "out")
    found = store.get(key)
    assert found is not None
    store.cas(key, found.version, None)
    with pytest.raises(StaleToken, match="not there any more"):
        writer.write(output.frame(sales(0)), number(0))


def test_an_output_that_never_ran_has_no_table(table: StreamTable) -> None:
    with pytest.raises(StreamError, match="no table yet"):
        table.files()


def test_readers_see_whole_batches_while_they_are_written(
    output: Bench, table: StreamTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LINGER", 0.0)
    writer = output.open(ParquetSink(), 1)
    done = threading.Event()
    seen: list[int] = []
    errors: list[Exception] = []

    def read() -> None:
        while not done.is_set():
            try:
                seen.append(sum(file.rows for file in table.files()))
            except Exception as error:
                errors.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for batch in range(FAN * FAN + 1):
            writer.write(output.frame(sales(batch, 2)), number(batch))
    finally:
        done.set()
        reader.join()
    assert not errors
    assert seen == sorted(seen)
    assert all(count % 2 == 0 for count in seen)
    assert len(arrow_rows(table)) == (FAN * FAN + 1) * 2

"""Run files: rows sorted by bucket, chunk by chunk, and how many there are of each bucket."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from penstock.batch.exchange.hashing import bucket_numbers
from penstock.batch.exchange.run_files import (
    SCHEMA as TRAVELLING,
)
from penstock.batch.exchange.run_files import (
    ExchangeFile,
    ExchangeWriter,
    bucket_totals,
    collected,
    decode_counts,
    encode_counts,
)
from penstock.core.codec import DocumentFormat
from penstock.errors import CorruptFile, UsageError
from penstock.spark import files
from penstock.storage import FileRecord, Storage
from tests.batch.exchange.support import BUCKETS, SCHEMA, batches, rows, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def stored(storage: Storage, file: ExchangeFile) -> list[pa.RecordBatch]:
    with storage.open(file.file.path) as source, pa.ipc.open_file(source) as reader:
        return [reader.get_batch(n) for n in range(reader.num_record_batches)]


def test_rows_are_sorted_by_bucket_and_else_stay_in_order(storage: Storage) -> None:
    (file,) = write(storage, "a", batches(rows(5000)), batch_rows=700)
    found = stored(storage, file)
    assert [batch.num_rows for batch in found] == [700] * 7 + [100]
    table = pa.Table.from_batches(found)
    numbers = bucket_numbers([table["key"].combine_chunks()], BUCKETS)
    assert (np.diff(numbers) >= 0).all()
    for bucket in np.unique(numbers):
        assert (np.diff(table["number"].to_numpy()[numbers == bucket]) > 0).all()
    assert sorted(table.to_pylist(), key=lambda row: int(row["number"])) == rows(5000)
    assert np.array_equal(file.bucket_rows(), np.bincount(numbers, minlength=BUCKETS))


def test_the_record_is_that_of_the_file(storage: Storage) -> None:
    (file,) = write(storage, "deep/folder", batches(rows(3000)))
    assert file.file.path == "deep/folder/part-00000-0.arrow" and file.file.rows == 3000
    storage.check(file.file)
    assert [path for path, _ in storage.list()] == [file.file.path]


def test_nothing_is_written_for_no_rows(storage: Storage) -> None:
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert write(storage, "a", []) == write(storage, "a", [empty, empty]) == ()
    assert storage.list() == []


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_memory_holds_one_chunk(storage: Storage, codec: str | None) -> None:
    given = batches(rows(10_000))
    (file,) = write(
        storage, "a", given, chunk_bytes=3 * max(b.nbytes for b in given), batch_rows=800, codec=codec
    )
    assert file.chunks().shape == (4, BUCKETS)
    assert file.chunks().sum(axis=1).tolist() == [3000, 3000, 3000, 1000]
    # No batch has rows of two chunks.
    sizes = [batch.num_rows for batch in stored(storage, file)]
    assert sizes == [800, 800, 800, 600] * 3 + [800, 200]
    at = 0
    for chunk in range(4):
        end = at + (2 if chunk == 3 else 4)
        table = pa.Table.from_batches(stored(storage, file)[at:end])
        assert sorted(table["number"].to_pylist()) == list(
            range(chunk * 3000, min(10_000, chunk * 3000 + 3000))
        )
        at = end


def test_a_batch_larger_than_a_chunk_is_a_chunk(storage: Storage) -> None:
    (file,) = write(storage, "a", batches(rows(3000)), chunk_bytes=1)
    assert file.chunks().sum(axis=1).tolist() == [1000] * 3


def test_a_large_task_does_not_need_much_more_than_two_chunks(storage: Storage) -> None:
    schema = pa.schema([("key", pa.int64()), ("text", pa.string())])

    def made() -> Iterator[pa.RecordBatch]:
        for at in range(0, 800_000, 10_000):
            keys = pa.array(np.arange(at, at + 10_000))
            yield pa.record_batch([keys, pa.array(["x" * 100] * 10_000)], schema=schema)

    chunk, before = 16 << 20, pa.total_allocated_bytes()
    most = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for batch in made():
            most = max(most, pa.total_allocated_bytes() - before)
            yield batch

    writer = ExchangeWriter(storage, "a", schema, ("key",), BUCKETS, chunk_bytes=chunk)
    (file,) = collected(row for batch in writer(watched()) for row in batch.to_pylist())
    assert len(file.counts) == 6 and file.file.rows == 800_000
    assert most < 2 * chunk


def test_one_key_is_one_bucket(storage: Storage) -> None:
    (file,) = write(storage, "a", batches([{"key": "x", "number": n, "words": None} for n in range(4000)]))
    assert sorted(file.bucket_rows().tolist())[-2:] == [0, 4000]


@pytest.mark.parametrize("buckets", [1, 3, 65_536, 65_537, 200_000])
def test_any_number_of_buckets(storage: Storage, buckets: int) -> None:
    (file,) = write(storage, "a", batches(rows(3000, keys=10**9)), buckets=buckets)
    table = pa.Table.from_batches(stored(storage, file))
    numbers = bucket_numbers([table["key"].combine_chunks()], buckets)
    assert (np.diff(numbers) >= 0).all()
    assert np.array_equal(file.bucket_rows(), np.bincount(numbers, minlength=buckets))


def test_rows_and_bytes_of_buckets(storage: Storage) -> None:
    (one,) = write(storage, "a", batches(rows(5000)), chunk_bytes=50_000)
    (other,) = write(storage, "b", batches(rows(333, first=9000)))
    assert one.rows_in(0, BUCKETS) == 5000
    assert one.rows_in(0, 20) + one.rows_in(20, BUCKETS) == 5000
    assert one.rows_in(7, 7) == 0
    assert one.bucket_bytes().sum() == one.file.bytes and one.bucket_bytes().min() >= 0
    there, back = bucket_totals([one, other], BUCKETS), bucket_totals([other, one], BUCKETS)
    assert np.array_equal(there, back)
    assert there[0].sum() == 5333 and there[1].sum() == one.file.bytes + other.file.bytes
    with pytest.raises(CorruptFile, match="64 buckets, not 32"):
        bucket_totals([one], 32)


def test_counts_are_a_short_text() -> None:
    counts = np.random.default_rng(1).poisson(250, 4096)
    text = encode_counts(counts)
    assert np.array_equal(decode_counts(text), counts)
    assert len(text) < 8000
    # What one release wrote, later ones read.
    assert decode_counts("eJxjYGBgYGaAABYgBgAARAAI").tolist() == [0, 3, 0, 4]


@pytest.mark.parametrize(
    "wrong",
    ["", "no base64!", "aGVsbG8=", encode_counts(np.array([-1])), encode_counts(np.array([1, 2]))[:-4]],
)
def test_counts_that_cannot_be_are_refused(wrong: str) -> None:
    with pytest.raises(CorruptFile, match="the bucket counts of a/b cannot be read"):
        ExchangeFile(FileRecord("a/b", 3, 1, ""), 10, (wrong,)).chunks()


def test_counts_that_are_of_another_file_are_refused() -> None:
    text = encode_counts(np.array([1, 2]))
    good = ExchangeFile(FileRecord("a/b", 6, 1, ""), 10, (text, text))
    assert good.bucket_rows().tolist() == [2, 4]
    for wrong in (
        replace(good, counts=(text,)),
        replace(good, counts=()),
        replace(good, batch_rows=0),
        replace(good, counts=(text, encode_counts(np.array([1, 1, 1])))),
    ):
        with pytest.raises(CorruptFile, match="bucket counts"):
            wrong.chunks()


@dataclass(frozen=True, slots=True)
class Listed:
    files: tuple[ExchangeFile, ...]


def test_a_document_can_have_them(storage: Storage) -> None:
    document = DocumentFormat(Listed, "a list")
    listed = Listed(write(storage, "a", batches(rows(100))))
    assert document.decode("there", document.encode(listed)) == listed


def test_a_writer_travels(storage: Storage) -> None:
    writer = ExchangeWriter(storage, "a", SCHEMA, ("key", "number"), 8, "lz4")
    assert pickle.loads(pickle.dumps(writer)) == writer


def test_what_cannot_be_written_is_refused(storage: Storage) -> None:
    with pytest.raises(UsageError, match="no column missing"):
        write(storage, "a", [], keys=("missing",))
    with pytest.raises(UsageError, match="no column"):
        write(storage, "a", [], keys=())
    with pytest.raises(UsageError, match="the column 'words' of type list"):
        write(storage, "a", [], keys=("words",))
    with pytest.raises(UsageError, match="chunks"):
        write(storage, "a", [], chunk_bytes=0)
    for unfit in (pa.string_view(), pa.list_(pa.binary_view()), pa.dictionary(pa.int32(), pa.string())):
        with pytest.raises(UsageError, match="dictionaries: odd"):
            write(storage, "a", [], schema=pa.schema([("key", pa.string()), ("odd", unfit)]))


def test_a_failure_leaves_no_file(storage: Storage) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(rows(3000))
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(ExchangeWriter(storage, "a", SCHEMA, ("key",), 8, chunk_bytes=1)(failing()))
    assert storage.list() == []


def test_on_spark(spark: SparkSession, storage: Storage) -> None:
    """Each task writes a file, and what describes it comes back through Spark."""
    some = [batches(rows(2000, first=2000 * n)) for n in range(3)]
    given = [write(storage, f"given/{n}", each, batch_rows=300)[0].file for n, each in enumerate(some)]
    flow = files.read(storage, "given", SCHEMA, given)
    writer = ExchangeWriter(storage, "made", SCHEMA, ("key",), BUCKETS, chunk_bytes=40_000, batch_rows=500)
    made = collected(flow.run(spark, (writer,), TRAVELLING).collect())
    assert len(made) == 3 and all(len(file.counts) > 1 and file.batch_rows == 500 for file in made)
    found = [row for file in made for batch in stored(storage, file) for row in batch.to_pylist()]
    assert sorted(found, key=lambda row: int(row["number"])) == rows(6000)
    assert [file.bucket_rows().sum() for file in made] == [2000] * 3

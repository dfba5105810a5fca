"""Reading key ranges: every row once, each key in one range, and nothing that is not what was written."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.batch.exchange.packing import pack
from penstock.batch.exchange.range_splits import RangeSplit, cut
from penstock.batch.exchange.run_files import (
    BATCH_ROWS,
    ExchangeFile,
    bucket_totals,
    encode_counts,
    encode_sums,
)
from penstock.errors import CorruptFile, UsageError
from penstock.storage import Storage
from tests.batch.exchange.support import BUCKETS, SCHEMA, batches, rows, write

COLUMNS = tuple(SCHEMA.names)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def made(storage: Storage, count: int, each: int, **options: Any) -> list[ExchangeFile]:
    """Files with ``each`` rows, some chunks in every one."""
    chunk = {"chunk_bytes": 40_000, "batch_rows": 256, **options}
    return [
        file
        for n in range(count)
        for file in write(storage, f"f{n:03d}", batches(rows(each, first=n * each)), **chunk)
    ]


def read(splits: Sequence[RangeSplit]) -> list[dict[str, Any]]:
    return [row for split in splits for batch in split.batches() for row in batch.to_pylist()]


def by_number(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: int(row["number"]))


@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_all_ranges_together_have_each_row_once_and_a_key_in_one(
    storage: Storage, tasks: int, codec: str | None
) -> None:
    files = made(storage, 4, 3000, codec=codec)
    assert all(len(file.counts) > 1 for file in files)
    ranges = pack(*bucket_totals(files, BUCKETS), 1 << 30, 7)
    assert len(ranges) == 7
    found, keys = [], []
    for each in ranges:
        splits = cut(storage, files, each.begin_bucket, each.end_bucket, COLUMNS, tasks)
        own = read(splits)
        assert len(own) == each.rows == sum(split.rows for split in splits)
        assert len(splits) <= tasks
        found += own
        keys.append({row["key"] for row in own})
    assert by_number(found) == rows(12_000)
    assert sum(map(len, keys)) == len(set.union(*keys)) == 501


def test_rows_of_a_bucket_come_in_the_order_of_files_and_of_their_rows(storage: Storage) -> None:
    files = made(storage, 3, 2000)
    for bucket in range(0, BUCKETS, 9):
        found = [row["number"] for row in read(cut(storage, files, bucket, bucket + 1, COLUMNS))]
        assert found == sorted(found)
        assert len(found) == sum(file.rows_in(bucket, bucket + 1) for file in files)


def test_only_wanted_columns_are_read_in_the_wanted_order(storage: Storage) -> None:
    files = made(storage, 2, 1000)
    for columns in (("number",), ("words", "key"), ("words", "number", "key")):
        (split,) = cut(storage, files, 0, BUCKETS, columns)
        assert {tuple(batch.schema.names) for batch in split.batches()} == {columns}
        assert sum(batch.num_rows for batch in split.batches()) == split.rows == 2000
    with pytest.raises(UsageError, match="without any column"):
        cut(storage, files, 0, BUCKETS, ())


def test_many_small_slices_become_large_batches(storage: Storage) -> None:
    files = made(storage, 40, 300)
    (split,) = cut(storage, files, 3, 9, COLUMNS)
    (batch,) = split.batches()
    assert batch.num_rows == split.rows == sum(file.rows_in(3, 9) for file in files)
    batch.validate(full=True)


def test_no_batch_is_too_large(storage: Storage) -> None:
    files = [
        write(
            storage, f"f{n}", batches([{"key": "x", "number": i, "words": None} for i in range(each)], 5000)
        )[0]
        for n, each in enumerate((40_000, 10, 9_000, 9_000))
    ]
    (split,) = cut(storage, files, 0, BUCKETS, COLUMNS)
    sizes = [batch.num_rows for batch in split.batches()]
    assert sum(sizes) == 58_010 and max(sizes) <= BATCH_ROWS and len(sizes) <= 6


def test_a_few_rows_do_not_keep_a_file_in_memory(storage: Storage) -> None:
    (file,) = write(storage, "f", batches(rows(10_000)))
    (split,) = cut(storage, [file], 5, 6, COLUMNS)
    (batch,) = split.batches()
    assert batch.get_total_buffer_size() < file.file.bytes / 20


def test_ranges_without_rows(storage: Storage) -> None:
    one = [{"key": "x", "number": n, "words": None} for n in range(5000)]
    (file,) = write(storage, "a", batches(one))
    bucket = int(np.flatnonzero(file.bucket_rows())[0])
    assert cut(storage, [file], 0, bucket, COLUMNS) == cut(storage, [], 0, 4, COLUMNS) == []
    assert cut(storage, [file], bucket + 1, BUCKETS, COLUMNS) == []
    assert read(cut(storage, [file], bucket, bucket + 1, COLUMNS, tasks=4)) == one
    assert list(RangeSplit(storage, (), COLUMNS).batches()) == []


def test_tasks_share_files_evenly(storage: Storage) -> None:
    files = made(storage, 12, 1000)
    splits = cut(storage, files, 0, BUCKETS, COLUMNS, 4)
    assert [split.rows for split in splits] == [3000] * 4
    assert len(cut(storage, files, 0, BUCKETS, COLUMNS, 100)) == 12
    assert by_number(read(splits)) == rows(12_000)
    with pytest.raises(UsageError, match="0 tasks"):
        cut(storage, files, 0, BUCKETS, COLUMNS, 0)


def test_a_split_is_small_and_travels(storage: Storage) -> None:
    (file,) = write(storage, "a", batches(rows(5000, keys=10**9)), buckets=4096, chunk_bytes=40_000)
    (split,) = cut(storage, [file], 0, 2000, COLUMNS)
    text = pickle.dumps(split)
    assert len(text) < len("".join(file.counts)) / 2
    assert read([pickle.loads(text)]) == read([split])


def test_a_truncated_file_is_corrupt(storage: Storage, tmp_path: Path) -> None:
    (file,) = made(storage, 1, 3000)
    place = tmp_path / file.file.path
    data = place.read_bytes()
    for size in (0, 10, len(data) // 2, len(data) - 1):
        place.write_bytes(data[:size])
        with pytest.raises(CorruptFile, match=r"part-00000-0\.arrow"):
            read(cut(storage, [file], 0, BUCKETS, COLUMNS))
    place.unlink()
    with pytest.raises(CorruptFile, match="cannot be read"):
        read(cut(storage, [file], 0, BUCKETS, COLUMNS))


def test_a_file_with_other_bytes_is_corrupt(storage: Storage, tmp_path: Path) -> None:
    (file,) = made(storage, 1, 3000)
    place = tmp_path / file.file.path
    place.write_bytes(bytes(file.file.bytes))
    with pytest.raises(CorruptFile, match="does not match its checksum"):
        read(cut(storage, [file], 0, BUCKETS, COLUMNS))


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_a_bit_that_was_turned_is_found_by_those_who_read_it(
    storage: Storage, tmp_path: Path, codec: str | None
) -> None:
    (file,) = write(storage, "f", batches(rows(3000)), codec=codec, batch_rows=256)
    place = tmp_path / file.file.path
    data = place.read_bytes()
    sums = file.byte_sums()
    assert len(sums) == 14, "a head, twelve batches, and a foot"
    for at in (*range(0, len(data), 997), len(data) - 1):
        place.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        begin, end = next((each.begin, each.end) for each in sums if at < each.end)
        with pytest.raises(CorruptFile, match=f"does not match its checksum in bytes {begin} to {end}"):
            read(cut(storage, [file], 0, BUCKETS, COLUMNS))
    at = sums[-2].begin + 100
    place.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    # Whoever does not need that batch is not kept from its own.
    last = cut(storage, [file], 0, 1, COLUMNS)
    assert len(read(last)) == file.rows_in(0, 1)


def test_checksums_that_are_none_are_corrupt(storage: Storage) -> None:
    (file,) = write(storage, "f", batches(rows(300)), batch_rows=100)
    few = encode_sums(file.byte_sums()[:2])
    for sums, told in (
        ("", "not those of"),
        ("%", "cannot be read"),
        ("AAAA", "cannot be read"),
        (few, "not those"),
    ):
        with pytest.raises(CorruptFile, match=told):
            cut(storage, [replace(file, sums=sums)], 0, BUCKETS, COLUMNS)


def test_another_number_of_rows_is_corrupt(storage: Storage) -> None:
    (file,) = write(storage, "f", batches(rows(3000)), batch_rows=256)
    counts = np.zeros(BUCKETS, np.int64)
    counts[0] = 3001
    more = replace(file, file=replace(file.file, rows=3001), counts=(encode_counts(counts),))
    with pytest.raises(CorruptFile, match="184 rows in its batch 11, not 185"):
        read(cut(storage, [more], 0, BUCKETS, COLUMNS))
    with pytest.raises(CorruptFile, match="256 rows in its batch 0, not 300"):
        read(cut(storage, [replace(file, batch_rows=300)], 0, BUCKETS, COLUMNS))
    with pytest.raises(CorruptFile, match="has 12 batches, and none with the number 14"):
        read(cut(storage, [replace(file, batch_rows=200)], 0, BUCKETS, COLUMNS))
    counts[0] = 256 * 12 + 1
    more = replace(file, file=replace(file.file, rows=256 * 12 + 1), counts=(encode_counts(counts),))
    with pytest.raises(CorruptFile):
        read(cut(storage, [more], 0, BUCKETS, COLUMNS))


def test_a_column_that_is_not_there_is_said(storage: Storage) -> None:
    with pytest.raises(CorruptFile, match="nowhere"):
        read(cut(storage, made(storage, 1, 100), 0, BUCKETS, ("nowhere",)))

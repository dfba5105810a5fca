"""Reading a key range: the rows of some consecutive buckets, out of many run files."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.batch.exchange.run_files import BATCH_ROWS, ByteSum, ExchangeFile
from penstock.config import shown_url
from penstock.core.arrow_data import sound
from penstock.errors import CorruptFile, UsageError
from penstock.spark.flow import Batches
from penstock.storage import FileRecord, Storage


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows ``begin`` (included) to ``end`` (excluded) of a chunk of ``size`` rows.

    The chunk begins with the batch ``batch`` of its file. ``chunk`` is its number among all of an exchange,
    where that matters.
    """

    batch: int
    size: int
    begin: int
    end: int
    chunk: int = 0

    @property
    def rows(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class FileShare:
    """What is read of one run file. Unlike the counts of its buckets, it is small: all tasks are sent it."""

    record: FileRecord
    batch_rows: int
    stretches: tuple[Stretch, ...]
    frame: tuple[ByteSum, ByteSum]
    """The checksums of what is before and after all batches."""
    sums: Mapping[int, ByteSum]
    """The checksum of each record batch that is read."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.stretches)


@dataclass(frozen=True, slots=True)
class RangeSplit:
    """The rows of a key range in some run files: file after file, and chunk after chunk of each.

    Rows of a bucket that come from one chunk are in the order in which they were written. Only one file is
    open at a time, and only the record batches that have rows of the range are read.
    """

    storage: Storage
    shares: tuple[FileShare, ...]
    columns: tuple[str, ...]

    @property
    def rows(self) -> int:
        return sum(share.rows for share in self.shares)

    def batches(self) -> Batches:
        """Exactly ``rows`` rows with the wanted columns, in batches that are not smaller than they need be.

        Raises `CorruptFile` if what is read is not what was written.
        """
        found = (read_share(self.storage, share, self.columns) for share in self.shares)
        return _joined(batch for share in found for _, batch in share)


def read_share(
    storage: Storage, share: FileShare, columns: Sequence[str]
) -> Iterator[tuple[Stretch, pa.RecordBatch]]:
    """The rows of each stretch, as they are in the batches of the file.

    Raises `CorruptFile` if what is read is not what was written.
    """
    where = shown_url(storage.location(share.record.path))
    try:
        with storage.open(share.record.path) as file:
            if file.size() != share.record.bytes:
                raise CorruptFile(f"{where} has {file.size()} bytes, not {share.record.bytes}")
            for each in share.frame:
                _check(file, where, each)
            reader = _opened(file, columns)
            for stretch in share.stretches:
                for number, begin, end, size in _places(stretch, share.batch_rows):
                    _check(file, where, share.sums[number])
                    batch = reader.get_batch(number)
                    if batch.num_rows != size:
                        raise CorruptFile(
                            f"{where} has {batch.num_rows} rows in its batch {number}, not {size}"
                        )
                    yield stretch, part(batch.select(list(columns)), begin, end)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise CorruptFile(f"{where} cannot be read: {error}") from error


def _opened(file: pa.NativeFile, columns: Sequence[str]) -> pa.RecordBatchFileReader:
    reader = pa.ipc.open_file(file)
    names = reader.schema.names
    if set(columns) == set(names):
        return reader
    options = pa.ipc.IpcReadOptions(included_fields=[names.index(c) for c in columns])
    return pa.ipc.open_file(file, options=options)


def cut(
    storage: Storage,
    files: Sequence[ExchangeFile],
    begin: int,
    end: int,
    columns: Sequence[str],
    tasks: int = 1,
) -> list[RangeSplit]:
    """The buckets from ``begin`` (included) to ``end`` (excluded), cut for at most ``tasks`` tasks.

    A cut is between two files. Files without rows of these buckets are not opened. Without any rows, there
    are no splits.
    """
    if tasks < 1:
        raise UsageError(f"a key range cannot be read by {tasks} tasks")
    if not columns:
        raise UsageError("a key range cannot be read without any column")
    found = [(each, _stretches(each, begin, end)) for each in files]
    shares = [share_of(each, stretches) for each, stretches in found if stretches]
    if not shares:
        return []
    upto = np.cumsum([share.rows for share in shares])
    # A file belongs to the task in whose even share of the rows its middle row is.
    middles = upto - np.array([share.rows for share in shares]) / 2
    owners = np.minimum((middles * tasks / upto[-1]).astype(np.int64), tasks - 1)
    gathered: dict[int, list[FileShare]] = {}
    for owner, share in zip(owners.tolist(), shares, strict=True):
        gathered.setdefault(owner, []).append(share)
    return [RangeSplit(storage, tuple(own), tuple(columns)) for own in gathered.values()]


def share_of(file: ExchangeFile, stretches: tuple[Stretch, ...]) -> FileShare:
    """What is read of a file, at least one stretch, with the checksums of just that."""
    head, *sums, foot = file.byte_sums()
    numbers = [number for each in stretches for number, _, _, _ in _places(each, file.batch_rows)]
    if max(numbers) >= len(sums):
        raise CorruptFile(
            f"{file.file.path} has {len(sums)} batches, and none with the number {max(numbers)}"
        )
    return FileShare(file.file, file.batch_rows, stretches, (head, foot), {n: sums[n] for n in numbers})


def _check(file: pa.NativeFile, where: str, recorded: ByteSum) -> None:
    file.seek(recorded.begin)
    if zlib.crc32(file.read_buffer(recorded.end - recorded.begin)) != recorded.crc:
        raise CorruptFile(f"{where} does not match its checksum in bytes {recorded.begin} to {recorded.end}")


def _stretches(file: ExchangeFile, begin: int, end: int) -> tuple[Stretch, ...]:
    found, batch = [], 0
    for counts in file.chunks():
        upto, rows, size = int(counts[:begin].sum()), int(counts[begin:end].sum()), int(counts.sum())
        if rows:
            found.append(Stretch(batch, size, upto, upto + rows))
        batch += -(-size // file.batch_rows)
    return tuple(found)


def _places(stretch: Stretch, batch_rows: int) -> Iterator[tuple[int, int, int, int]]:
    """For each record batch of a stretch: its number, the first row and the one after the last, its size."""
    for nth in range(stretch.begin // batch_rows, -(-stretch.end // batch_rows)):
        first = nth * batch_rows
        size = min(batch_rows, stretch.size - first)
        yield stretch.batch + nth, max(0, stretch.begin - first), min(size, stretch.end - first), size


def part(batch: pa.RecordBatch, begin: int, end: int) -> pa.RecordBatch:
    """Rows of a batch, which do not keep much more than themselves in memory."""
    rows = sound(batch.slice(begin, end - begin))
    # A few rows would keep all of their batch in memory, or a mapping of their file.
    return rows if 2 * rows.num_rows >= batch.num_rows else pa.concat_batches([rows])


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Many small batches together, since each costs its handling."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if held and rows + batch.num_rows > BATCH_ROWS:
            yield pa.concat_batches(held) if len(held) > 1 else held[0]
            held, rows = [], 0
        held.append(batch)
        rows += batch.num_rows
    if held:
        yield pa.concat_batches(held) if len(held) > 1 else held[0]

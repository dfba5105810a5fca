"""Ranges of sorted rows: where they begin is chosen from samples, and one is read out of many run files.

Chunks of run files are sorted by themselves. A *boundary* is a key and the number of a chunk: before it are
rows with a lower key, and those with the same key in chunks with lower numbers. So rows of one key can be in
several ranges, and ranges are even, however many rows a key has. Chunks are numbered through all files. Rows
with equal keys stay in the order of their chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.batch.exchange.ordering import before, decode_rows, encode_rows, sort_indices
from penstock.batch.exchange.packing import ExchangePlan, KeyRange, digest_of
from penstock.batch.exchange.range_splits import FileShare, Stretch, part, read_share, share_of
from penstock.batch.exchange.run_files import BATCH_ROWS, Counts, ExchangeFile, sample_step, spread
from penstock.errors import CorruptFile, UsageError
from penstock.spark.flow import Batches
from penstock.storage import Storage
from penstock.types.arrow import is_bytes, is_text
from penstock.types.order import Order, SortColumn

CHUNK = "chunk number"
"""The column beside the keys; no field of a table has a name with a blank."""
_LONGEST = 256
"""Of longer texts a boundary has the beginning: it lies in a document of the store."""
_MOST_RANGES = 4096


def plan(
    files: Sequence[ExchangeFile],
    order: Order,
    *,
    target_bytes: int,
    at_least: int,
    made_of: Mapping[str, str],
    without: Iterable[str] = (),
) -> ExchangePlan:
    """The plan for the files of a table that is sorted, in the order of the partitions that wrote them.

    What it tells of the rows and bytes of a range is an estimate; of all ranges together it is exact.
    """
    if target_bytes < 1 or at_least < 1:
        raise UsageError(f"rows cannot make {at_least} ranges of {target_bytes} bytes")
    size = sum(each.file.bytes for each in files)
    # They are in one small document.
    count = min(_MOST_RANGES, max(at_least, -(-size // target_bytes)))
    lacking, text, upto = tuple(sorted(set(without))), None, []
    if (samples := _sampled(files, order)) is not None:
        bounds = _boundaries(samples, _with_chunk(order), count)
        upto = [samples.rows_before(_with_chunk(order), each) for each in _rows(bounds)]
        text = encode_rows(bounds) if upto else None
    rows = np.diff([0, *upto, sum(each.file.rows for each in files)])
    sizes = spread(size, rows)
    ranges = (KeyRange(n, n + 1, int(rows[n]), int(sizes[n])) for n in range(len(rows)))
    return ExchangePlan(len(rows), tuple(ranges), lacking, digest_of(made_of, lacking), text)


class _Chunk(NamedTuple):
    """A chunk of a run file: its first batch there, and its first sample among all."""

    file: int
    number: int
    batch: int
    rows: int
    step: int
    sample: int

    @property
    def samples(self) -> int:
        return -(-self.rows // self.step)


@dataclass(frozen=True, slots=True)
class _Samples:
    """The samples of all chunks of some files, and how many rows each of them stands for."""

    keys: pa.RecordBatch
    weights: Counts
    chunks: tuple[_Chunk, ...]

    def rows_before(self, order: Order, bound: pa.RecordBatch) -> int:
        """About how many rows are before it."""
        return int(self.weights[before(self.keys, order, bound)].sum())


def _sampled(files: Sequence[ExchangeFile], order: Order) -> _Samples | None:
    """What is known of the rows of files; None if there are no files."""
    chunks: list[_Chunk] = []
    found: list[pa.RecordBatch] = []
    for number, each in enumerate(files):
        batch, sample = 0, sum(some.num_rows for some in found)
        for rows in each.chunks().sum(axis=1).tolist():
            chunk = _Chunk(number, len(chunks), batch, rows, sample_step(rows, each.batch_rows), sample)
            chunks.append(chunk)
            batch += -(-rows // each.batch_rows)
            sample += chunk.samples
        found.append(_keys(each, order))
        if sum(some.num_rows for some in found) != sample:
            raise CorruptFile(f"{each.file.path} has other samples than its chunks need")
    if not found:
        return None
    numbers = np.repeat([each.number for each in chunks], [each.samples for each in chunks])
    keys = pa.concat_batches(found).append_column(CHUNK, pa.array(numbers, pa.int64()))
    return _Samples(keys, np.concatenate([_weights(each) for each in chunks]), tuple(chunks))


def _keys(file: ExchangeFile, order: Order) -> pa.RecordBatch:
    try:
        return decode_rows(file.samples or "").select([each.name for each in order])
    except (ValueError, KeyError) as error:
        raise CorruptFile(f"the samples of {file.file.path} cannot be read: {error}") from error


def _weights(chunk: _Chunk) -> Counts:
    """Of the rows between two samples, half are taken for lower than what lies there."""
    weights = np.full(chunk.samples, chunk.step, np.int64)
    weights[0] = (chunk.step + 1) // 2
    weights[-1] = min(int(weights[-1]), chunk.rows - int(weights[:-1].sum()))
    return weights


def _with_chunk(order: Order) -> Order:
    return (*order, SortColumn(CHUNK))


def _boundaries(samples: _Samples, order: Order, count: int) -> pa.RecordBatch:
    """Keys that cut the rows into at most ``count`` ranges that are about even, sorted and different."""
    indices = sort_indices(samples.keys, order)
    upto = np.cumsum(samples.weights[indices.to_numpy()])
    shares = np.arange(1, count) * sum(each.rows for each in samples.chunks) // count
    chosen = np.unique(np.searchsorted(upto, shares) + 1)
    bounds = _shortened(samples.keys.take(indices.take(pa.array(chosen[chosen < len(upto)]))))
    bounds = bounds.take(sort_indices(bounds, order))
    # A range begins behind where the one before it does, the second one behind the lowest row of all.
    lower = [samples.keys.take(indices.slice(0, 1)), *_rows(bounds)]
    kept = [n for n, each in enumerate(_rows(bounds)) if before(lower[n], order, each)[0]]
    return bounds.take(pa.array(kept, pa.int64()))


def _shortened(keys: pa.RecordBatch) -> pa.RecordBatch:
    columns = []
    for column in keys.columns:
        if is_text(column.type):
            columns.append(pc.utf8_slice_codeunits(column, 0, _LONGEST))
        else:
            columns.append(pc.binary_slice(column, 0, _LONGEST) if is_bytes(column.type) else column)
    return pa.RecordBatch.from_arrays(columns, names=keys.schema.names)


def _rows(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (rows.slice(n, 1) for n in range(rows.num_rows))


def cut(
    storage: Storage,
    files: Sequence[ExchangeFile],
    order: Order,
    boundaries: str | None,
    number: int,
    columns: Sequence[str],
) -> list[SortedSplit]:
    """What one task reads for the range with this number; nothing if there are no rows at all."""
    samples = _sampled(files, order)
    if samples is None:
        return []
    bounds = [None, *(_rows(decode_rows(boundaries)) if boundaries else ()), None]
    lower, upper = bounds[number], bounds[number + 1]
    shares: dict[int, list[Stretch]] = {}
    for chunk, stretch in _stretches(files, order, samples, lower, upper):
        shares.setdefault(chunk.file, []).append(stretch)
    found = (share_of(files[n], tuple(each)) for n, each in shares.items())
    return [SortedSplit(storage, tuple(found), tuple(columns), order, lower, upper)]


def _stretches(
    files: Sequence[ExchangeFile],
    order: Order,
    samples: _Samples,
    lower: pa.RecordBatch | None,
    upper: pa.RecordBatch | None,
) -> Iterator[tuple[_Chunk, Stretch]]:
    """The batches of each chunk that can have rows of a range."""
    count = samples.keys.num_rows
    below, inside = np.zeros(count, np.bool_), np.ones(count, np.bool_)
    if lower is not None:
        below = before(samples.keys, _with_chunk(order), lower)
    if upper is not None:
        inside = before(samples.keys, _with_chunk(order), upper)
    for chunk in samples.chunks:
        size = files[chunk.file].batch_rows
        firsts = slice(chunk.sample, chunk.sample + chunk.samples, size // chunk.step)
        # A batch whose first row is before the range may have rows of it, if the next one has.
        begin, end = max(0, int(below[firsts].sum()) - 1), int(inside[firsts].sum())
        if begin < end:
            rows = min(chunk.rows, end * size)
            yield chunk, Stretch(chunk.batch, chunk.rows, begin * size, rows, chunk.number)


@dataclass(frozen=True, slots=True)
class SortedSplit:
    """The rows of a range, sorted: what of the batches of its shares is between its boundaries."""

    storage: Storage
    shares: tuple[FileShare, ...]
    columns: tuple[str, ...]
    order: Order
    lower: pa.RecordBatch | None
    upper: pa.RecordBatch | None

    @property
    def rows(self) -> int:
        """At most so many."""
        return sum(share.rows for share in self.shares)

    def batches(self) -> Batches:
        """All rows of the range are in memory at once."""
        names = [*self.columns, *(e.name for e in self.order if e.name not in self.columns)]
        found = [
            rows
            for share in self.shares
            for stretch, batch in read_share(self.storage, share, names)
            if (rows := self._within(batch, stretch.chunk)).num_rows
        ]
        if not found:
            return
        whole = pa.concat_batches(found)
        found.clear()
        indices = sort_indices(whole, self.order)
        for begin in range(0, len(indices), BATCH_ROWS):
            yield whole.take(indices.slice(begin, BATCH_ROWS)).select(list(self.columns))

    def _within(self, batch: pa.RecordBatch, chunk: int) -> pa.RecordBatch:
        keys = batch.select([each.name for each in self.order])
        keys = keys.append_column(CHUNK, pa.array(np.full(batch.num_rows, chunk), pa.int64()))
        # The batch is sorted: what is before a row stands before it.
        begin, end = (
            int(before(keys, _with_chunk(self.order), bound).sum()) if bound is not None else none
            for bound, none in ((self.lower, 0), (self.upper, batch.num_rows))
        )
        return part(batch, begin, end) if end - begin < batch.num_rows else batch

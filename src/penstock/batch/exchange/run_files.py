"""Run files: what a task hands to an exchange, as Arrow IPC files whose rows are sorted by bucket.

A task cannot hold all of its rows. It sorts what fits into memory, and writes that as one *chunk* of its
file: the rows of bucket 0 in the order in which they came, then those of bucket 1, and so on. All record
batches of a chunk have ``batch_rows`` rows, but the last, and none has rows of two chunks. With the number of
rows that each chunk has of each bucket, the rows of some buckets are found without reading others; with the
place and checksum of each record batch, what is read is known to be what was written.

For an output that is sorted, each chunk has its rows in that order instead, in a single bucket. What tells
where rows are is then the key of every nth row, the *samples* of the chunk: see `sorted_ranges`.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from penstock.batch.exchange.hashing import bucket_numbers, check_key
from penstock.batch.exchange.ordering import encode_rows, sort_indices
from penstock.errors import CorruptFile, UsageError
from penstock.spark.files import folder_of
from penstock.spark.flow import Batches
from penstock.storage import FileRecord, FileWriter, Storage
from penstock.types.arrow import has_inside
from penstock.types.order import Order

if TYPE_CHECKING:
    from pyspark.sql import Row

Counts: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

BATCH_ROWS = 16_384
CHUNK_BYTES = 128 << 20
_LARGEST_CHUNK = 1 << 30
"""The offsets of texts have 32 bits, and their rows become one batch."""
_SAMPLES = 64
"""A sorted chunk has at least so many samples, if it has the rows."""

SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("batch_rows", pa.int32()),
        ("counts", pa.list_(pa.string())),
        ("sums", pa.string()),
        ("samples", pa.string()),
    ]
)
"""How files travel from the tasks that wrote them to the driver."""


class ByteSum(NamedTuple):
    """Bytes of a file, from ``begin`` to ``end``, and their CRC-32."""

    begin: int
    end: int
    crc: int


@dataclass(frozen=True, slots=True)
class ExchangeFile:
    """A run file. ``counts`` has a text for each chunk, which `encode_counts` made.

    ``sums`` is one of `encode_sums` for its head, each of its record batches, and its foot.
    """

    file: FileRecord
    batch_rows: int
    counts: tuple[str, ...]
    sums: str = ""
    samples: str | None = None
    """The keys of some rows of all its chunks, if they are sorted, as a text that `encode_rows` made."""

    def byte_sums(self) -> list[ByteSum]:
        """The checksums of head, batches and foot; `CorruptFile` if that cannot be."""
        try:
            found = decode_sums(self.sums)
        except ValueError as error:
            raise CorruptFile(f"the checksums of {self.file.path} cannot be read: {error}") from error
        if len(found) < 2 or found[-1].end != self.file.bytes:
            raise CorruptFile(f"the checksums of {self.file.path} are not those of {self.file.bytes} bytes")
        return found

    def chunks(self) -> Counts:
        """The rows of each chunk in each bucket, with two dimensions; `CorruptFile` if that cannot be."""
        try:
            found = np.stack([decode_counts(text) for text in self.counts])
        except ValueError as error:
            raise CorruptFile(f"the bucket counts of {self.file.path} cannot be read: {error}") from error
        if self.batch_rows < 1 or found.sum() != self.file.rows:
            raise CorruptFile(
                f"the bucket counts of {self.file.path} make {found.sum()} rows, not {self.file.rows}"
            )
        return found

    def bucket_rows(self) -> Counts:
        """The rows in each bucket."""
        rows: Counts = self.chunks().sum(axis=0)
        return rows

    def bucket_bytes(self) -> Counts:
        """The bytes of the file, spread over its buckets by rows; all of them together are the file's."""
        return spread(self.file.bytes, self.bucket_rows())

    def rows_in(self, begin: int, end: int) -> int:
        """The rows in the buckets from ``begin`` (included) to ``end`` (excluded)."""
        return int(self.bucket_rows()[begin:end].sum())


def encode_counts(counts: np.ndarray[Any, Any]) -> str:
    """The numbers of rows in all buckets, as a document has them: little-endian, 32 bits, zlib, base64."""
    return base64.b64encode(zlib.compress(counts.astype("<i4").tobytes())).decode("ascii")


def decode_counts(text: str) -> Counts:
    """The inverse of `encode_counts`; a `ValueError` for anything else."""
    try:
        found = np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), "<i4")
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not len(found) or found.min() < 0:
        raise ValueError("it has no number of rows for each bucket")
    return found.astype(np.int64)


def encode_sums(sums: Sequence[ByteSum]) -> str:
    """The ends and checksums of all bytes of a file, stretch by stretch: little-endian, 64 bits, base64."""
    flat = [number for each in sums for number in (each.end, each.crc)]
    return base64.b64encode(np.array(flat, "<i8").tobytes()).decode("ascii")


def decode_sums(text: str) -> list[ByteSum]:
    """The inverse of `encode_sums`; a `ValueError` for anything else."""
    flat = np.frombuffer(base64.b64decode(text, validate=True), "<i8").tolist()
    ends, crcs = flat[0::2], flat[1::2]
    return [ByteSum(*each) for each in zip([0, *ends][: len(ends)], ends, crcs, strict=True)]


def sample_step(rows: int, batch_rows: int) -> int:
    """Of a sorted chunk, every so many rows there is a sample: at the least, the first row of each batch."""
    step = batch_rows
    while step % 2 == 0 and rows < _SAMPLES * step:
        step //= 2
    return step


def bucket_totals(files: Iterable[ExchangeFile], buckets: int) -> tuple[Counts, Counts]:
    """The rows and the bytes of all files together, by bucket; whatever the order of the files.

    Raises `CorruptFile` for a file that was written with another number of buckets.
    """
    rows, sizes = np.zeros(buckets, np.int64), np.zeros(buckets, np.int64)
    for each in files:
        own = each.bucket_rows()
        if len(own) != buckets:
            raise CorruptFile(f"{each.file.path} has {len(own)} buckets, not {buckets}")
        rows += own
        sizes += spread(each.file.bytes, own)
    return rows, sizes


def spread(size: int, rows: Counts) -> Counts:
    """``size`` bytes by rows, in whole numbers: sums of fractions would depend on the order of the files."""
    upto = np.concatenate((np.zeros(1, np.int64), np.cumsum(rows)))
    # A quotient and a product are the same on every machine, and that of all rows is exactly ``size``.
    shares = np.floor(upto / max(1, int(upto[-1])) * size).astype(np.int64)
    spread: Counts = shares[1:] - shares[:-1]
    return spread


def numbered(rows: Iterable[Row]) -> list[tuple[int, ExchangeFile]]:
    """The files of all tasks that an `ExchangeWriter` ran in, with their numbers, in the order of these."""
    return [
        (
            int(r["part"]),
            ExchangeFile(
                FileRecord(r["path"], r["rows"], r["bytes"], r["sha256"]),
                r["batch_rows"],
                tuple(r["counts"]),
                r["sums"],
                r["samples"],
            ),
        )
        for r in sorted(rows, key=lambda r: int(r["part"]))
    ]


def collected(rows: Iterable[Row]) -> tuple[ExchangeFile, ...]:
    """The files of all tasks that an `ExchangeWriter` ran in, in the order of their numbers."""
    return tuple(file for _, file in numbered(rows))


@dataclass(frozen=True, slots=True)
class ExchangeWriter:
    """A step that writes the rows of its task to one run file, and yields a row of `SCHEMA` for it.

    The batches have exactly ``schema``. A task without rows writes no file and yields nothing. Memory holds
    about twice ``chunk_bytes``, or twice one batch if that is larger. With an ``order``, whose columns are
    the keys, chunks are sorted by it, and there is one bucket.
    """

    storage: Storage
    folder: str | tuple[str, ...]
    """Where to; or where each task writes to, by its number."""
    schema: pa.Schema
    keys: tuple[str, ...]
    buckets: int
    codec: str | None = None
    chunk_bytes: int = CHUNK_BYTES
    batch_rows: int = BATCH_ROWS
    order: Order = ()

    def __post_init__(self) -> None:
        """Raises `UsageError` for what cannot be written."""
        unknown = [name for name in self.keys if name not in self.schema.names]
        if unknown or not self.keys:
            what = f"there is no column {', '.join(unknown)}" if unknown else "there is no column"
            raise UsageError(f"{what} to exchange by", hint=f"columns: {', '.join(self.schema.names)}")
        for name in self.keys:
            check_key(self.schema.field(name).type, name)
        if unfit := [field.name for field in self.schema if has_inside(field.type, _is_unfit)]:
            raise UsageError(
                f"a run file cannot have views or dictionaries: {', '.join(unfit)}",
                hint="cast the column to string or binary",
            )
        if not 1 <= self.chunk_bytes <= _LARGEST_CHUNK or self.batch_rows < 1:
            raise UsageError(f"chunks cannot have {self.chunk_bytes} bytes", hint=f"at most {_LARGEST_CHUNK}")

    def __call__(self, batches: Batches) -> Batches:
        from pyspark import TaskContext

        chunks = self._chunks(batches)
        first = next(chunks, None)
        if first is None:
            return
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        folder = self.folder if isinstance(self.folder, str) else folder_of(self.folder, part)
        path = f"{folder}/part-{part:05d}-{attempt}.arrow"
        with self.storage.create(path) as sink:
            summed = _Summed(sink)
            written = self._write(summed, first, chunks)
        record = sink.record(path, sum(int(each.counts.sum()) for each in written))
        row = {
            "part": part,
            **record.to_json(),
            "batch_rows": self.batch_rows,
            "counts": [encode_counts(each.counts) for each in written],
            "sums": encode_sums(summed.sums),
            "samples": self._samples(written),
        }
        yield pa.RecordBatch.from_pylist([row], schema=SCHEMA)

    def _samples(self, written: Iterable[_Chunk]) -> str | None:
        found = [each.samples for each in written if each.samples is not None]
        return encode_rows(pa.concat_batches(found)) if found else None

    def _chunks(self, batches: Batches) -> Iterator[list[pa.RecordBatch]]:
        """Batches that are sorted together. Whoever takes them may empty the list."""
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if held and size + batch.nbytes > self.chunk_bytes:
                yield held
                held, size = [], 0
            if batch.num_rows:
                held.append(batch)
                size += batch.nbytes
        if held:
            yield held

    def _write(
        self, sink: _Summed, first: list[pa.RecordBatch], rest: Iterator[list[pa.RecordBatch]]
    ) -> list[_Chunk]:
        options = pa.ipc.IpcWriteOptions(compression=self.codec)
        written = []
        file = pa.PythonFile(sink, mode="w")
        with pa.ipc.new_file(file, self.schema, options=options) as writer:
            sink.mark()
            chunk: list[pa.RecordBatch] | None = first
            while chunk is not None:
                written.append(self._write_chunk(writer, sink, chunk))
                chunk = next(rest, None)
        sink.mark()
        return written

    def _write_chunk(self, writer: pa.RecordBatchWriter, sink: _Summed, held: list[pa.RecordBatch]) -> _Chunk:
        whole = held[0] if len(held) == 1 else pa.concat_batches(held)
        held.clear()
        indices, chunk = self._sorted(whole) if self.order else self._by_bucket(whole)
        for begin in range(0, len(indices), self.batch_rows):
            # One batch at a time: all sorted rows would be in memory once more.
            writer.write_batch(whole.take(indices.slice(begin, self.batch_rows)))
            sink.mark()
        return chunk

    def _by_bucket(self, whole: pa.RecordBatch) -> tuple[pa.Array, _Chunk]:
        numbers = bucket_numbers([whole.column(name) for name in self.keys], self.buckets)
        # Numpy sorts 16 bits by their digits, and anything longer by comparing.
        narrow = numbers.astype(np.uint16) if self.buckets <= 1 << 16 else numbers
        indices = pa.array(np.argsort(narrow, kind="stable"))
        return indices, _Chunk(np.bincount(numbers, minlength=self.buckets))

    def _sorted(self, whole: pa.RecordBatch) -> tuple[pa.Array, _Chunk]:
        indices = sort_indices(whole, self.order)
        sampled = indices.take(pa.array(range(0, len(indices), sample_step(len(indices), self.batch_rows))))
        samples = whole.select([each.name for each in self.order]).take(sampled)
        return indices, _Chunk(np.array([len(indices)], np.int64), samples)


class _Chunk(NamedTuple):
    """What was written: the rows of each bucket, or the samples of rows that are sorted."""

    counts: Counts
    samples: pa.RecordBatch | None = None


class _Summed:
    """A file for pyarrow that takes checksums of what is written from one mark to the next."""

    def __init__(self, sink: FileWriter) -> None:
        self._sink = sink
        self._begin = self._crc = 0
        self.sums: list[ByteSum] = []
        self.closed = False

    def mark(self) -> None:
        self.sums.append(ByteSum(self._begin, self._sink.tell(), self._crc))
        self._begin, self._crc = self._sink.tell(), 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._crc = zlib.crc32(view, self._crc)
        return self._sink.write(view)

    def tell(self) -> int:
        return self._sink.tell()

    def flush(self) -> None:
        """Nothing to do: durability comes at the end."""

    def close(self) -> None:
        """The file is finished by whoever made it."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _is_unfit(kind: pa.DataType) -> bool:
    """Arrow takes no rows of a view, and writes only one dictionary of a column to a file."""
    return bool(t.is_string_view(kind) or t.is_binary_view(kind) or t.is_dictionary(kind))

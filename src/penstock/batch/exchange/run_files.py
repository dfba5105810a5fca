"""Run files: what a task hands to an exchange, as Arrow IPC files whose rows are sorted by bucket.

A task cannot hold all of its rows. It sorts what fits into memory, and writes that as one *chunk* of its
file: the rows of bucket 0 in the order in which they came, then those of bucket 1, and so on. All record
batches of a chunk have ``batch_rows`` rows, but the last, and none has rows of two chunks. With the number of
rows that each chunk has of each bucket, the rows of some buckets are found without reading others.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types as t

from penstock.batch.exchange.hashing import bucket_numbers, check_key
from penstock.errors import CorruptFile, UsageError
from penstock.spark.files import folder_of
from penstock.spark.flow import Batches
from penstock.storage import FileRecord, FileWriter, Storage
from penstock.types.arrow import has_inside

if TYPE_CHECKING:
    from pyspark.sql import Row

Counts: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

BATCH_ROWS = 16_384
CHUNK_BYTES = 128 << 20
_LARGEST_CHUNK = 1 << 30
"""The offsets of texts have 32 bits, and their rows become one batch."""

SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("batch_rows", pa.int32()),
        ("counts", pa.list_(pa.string())),
    ]
)
"""How files travel from the tasks that wrote them to the driver."""


@dataclass(frozen=True, slots=True)
class ExchangeFile:
    """A run file. ``counts`` has a text for each chunk, which `encode_counts` made."""

    file: FileRecord
    batch_rows: int
    counts: tuple[str, ...]

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
        return _spread(self.file.bytes, self.bucket_rows())

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
        sizes += _spread(each.file.bytes, own)
    return rows, sizes


def _spread(size: int, rows: Counts) -> Counts:
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
                FileRecord(r["path"], r["rows"], r["bytes"], r["sha256"]), r["batch_rows"], tuple(r["counts"])
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
    about twice ``chunk_bytes``, or twice one batch if that is larger.
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
            counts = self._write(sink, first, chunks)
        record = sink.record(path, sum(int(each.sum()) for each in counts))
        texts = [encode_counts(each) for each in counts]
        row = {"part": part, **record.to_json(), "batch_rows": self.batch_rows, "counts": texts}
        yield pa.RecordBatch.from_pylist([row], schema=SCHEMA)

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
        self, sink: FileWriter, first: list[pa.RecordBatch], rest: Iterator[list[pa.RecordBatch]]
    ) -> list[Counts]:
        options = pa.ipc.IpcWriteOptions(compression=self.codec)
        counts = []
        file = pa.PythonFile(sink, mode="w")
        with pa.ipc.new_file(file, self.schema, options=options) as writer:
            chunk: list[pa.RecordBatch] | None = first
            while chunk is not None:
                counts.append(self._write_chunk(writer, chunk))
                chunk = next(rest, None)
        return counts

    def _write_chunk(self, writer: pa.RecordBatchWriter, held: list[pa.RecordBatch]) -> Counts:
        whole = held[0] if len(held) == 1 else pa.concat_batches(held)
        held.clear()
        numbers = bucket_numbers([whole.column(name) for name in self.keys], self.buckets)
        # Numpy sorts 16 bits by their digits, and anything longer by comparing.
        narrow = numbers.astype(np.uint16) if self.buckets <= 1 << 16 else numbers
        order = np.argsort(narrow, kind="stable")
        for begin in range(0, len(order), self.batch_rows):
            # One batch at a time: all sorted rows would be in memory once more.
            writer.write_batch(whole.take(pa.array(order[begin : begin + self.batch_rows])))
        return np.bincount(numbers, minlength=self.buckets)


def _is_unfit(kind: pa.DataType) -> bool:
    """Arrow takes no rows of a view, and writes only one dictionary of a column to a file."""
    return bool(t.is_string_view(kind) or t.is_binary_view(kind) or t.is_dictionary(kind))

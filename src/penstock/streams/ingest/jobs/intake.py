"""From what a poll brings to rows in the queue: fitted to the table, with event time, late ones apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, SourceFailed, TypeMismatch
from penstock.sources.base import PartName
from penstock.spark.fitting import fit, from_rows
from penstock.storage import Storage
from penstock.streams.log.schemas import END_MICROS, END_OF_TIME
from penstock.streams.model import RowFile

if TYPE_CHECKING:
    from penstock.sources.base import Rows
    from penstock.streams.api.stream import SourceSpec, Timestamps

_GATHER_ROWS = 1 << 16
_GATHER_BYTES = 16 << 20


class Intake:
    """Takes in the rows of one task and writes them to queue files, by source and lateness.

    ``thresholds`` are by source the event time, in microseconds, below which a row is late. Files are
    complete when the block ends without an error, and are gone otherwise.
    """

    def __init__(
        self, storage: Storage, prefix: str, codec: str | None, thresholds: Mapping[str, int]
    ) -> None:
        self._storage = storage
        self._prefix = prefix
        self._codec = codec
        self._thresholds = thresholds
        self._stack = ExitStack()
        self._files: dict[tuple[str, bool, int], _QueueFile] = {}
        self._numbers: dict[str, int] = {}
        self._newest: dict[PartName, int] = {}
        self._taken: dict[str, tuple[int, int]] = {}
        self._complete = False
        self.rows = 0
        self.bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and not self._complete:
            with self._stack:
                self.complete()
        self._stack.__exit__(kind, error, trace)

    def complete(self) -> None:
        """Complete the files, before the block's end does. Nothing more can be taken in."""
        for file in self._files.values():
            file.flush()
            file.end()
        self._stack.close()
        self._complete = True

    @property
    def written(self) -> list[RowFile]:
        """The files, once the block has ended."""
        return [file.described() for file in self._files.values()]

    @property
    def newest(self) -> Mapping[PartName, int]:
        """The greatest event time that each part has brought."""
        return self._newest

    @property
    def taken(self) -> Mapping[str, tuple[int, int]]:
        """How many rows came, and how many bytes they take in memory, by source."""
        return self._taken

    def take(self, spec: SourceSpec, part: str, brought: Rows) -> int:
        """Take in what a poll brought, and how many rows that were."""
        batch = _as_batch(spec, part, brought)
        if batch is None:
            return 0
        count: int = batch.num_rows
        self._count(spec.name, count, batch.nbytes)
        if spec.timestamps is None:
            self._file(spec, False).add(batch)
            return count
        times = event_times(batch, spec.timestamps)
        _check_times(spec, spec.timestamps, part, times)
        name, newest = PartName(spec.name, part), pc.max(times).as_py()
        self._newest[name] = max(newest, self._newest.get(name, newest))
        late = self._late(spec, batch, times)
        if late is not None:
            self._file(spec, True).add(batch.filter(late))
            on_time = pc.invert(late)
            batch, times = batch.filter(on_time), times.filter(on_time)
        if batch.num_rows:
            self._file(spec, False).add(batch, pc.max(times).as_py())
        return count

    def next_file(self, source: str) -> None:
        """Let further rows of a source go to files of their own."""
        self._numbers[source] = self._numbers.get(source, 0) + 1

    def _count(self, source: str, rows: int, size: int) -> None:
        before = self._taken.get(source, (0, 0))
        self._taken[source] = before[0] + rows, before[1] + size
        self.rows += rows
        self.bytes += size

    def _late(self, spec: SourceSpec, batch: pa.RecordBatch, times: pa.Array) -> pa.Array | None:
        """Which rows are late; None if no row is."""
        # Spark's watermark begins in 1970: it would drop what is older, and nobody would know.
        threshold = max(0, self._thresholds.get(spec.name, 0))
        if not batch.num_rows or pc.min(times).as_py() >= threshold:
            return None
        return pc.less(times, threshold)

    def _file(self, spec: SourceSpec, late: bool) -> _QueueFile:
        number = self._numbers.get(spec.name, 0)
        key = spec.name, late, number
        if key not in self._files:
            path = (
                f"{self._prefix}-{spec.name}{f'-{number}' if number else ''}{'-late' if late else ''}.arrow"
            )
            sink = self._stack.enter_context(self._storage.create(path))
            self._files[key] = _QueueFile(spec.name, late, path, sink, queue_schema(spec), self._codec)
        return self._files[key]


class _QueueFile:
    """One Arrow IPC file on its way. Small polls are gathered: readers pay for every batch."""

    def __init__(
        self, source: str, late: bool, path: str, sink: Any, schema: pa.Schema, codec: str | None
    ) -> None:
        self._source = source
        self._late = late
        self._path = path
        self._sink = sink
        options = pa.ipc.IpcWriteOptions(compression=codec)
        self._writer = pa.ipc.new_file(pa.PythonFile(sink, mode="w"), schema, options=options)
        self._gathered: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._rows = 0
        self._newest: int | None = None

    def add(self, batch: pa.RecordBatch, newest: int | None = None) -> None:
        self._gathered.append(batch)
        self._rows += batch.num_rows
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if newest is not None:
            self._newest = newest if self._newest is None else max(self._newest, newest)
        if self._waiting_rows >= _GATHER_ROWS or self._waiting_bytes >= _GATHER_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._gathered:
            for batch in pa.Table.from_batches(self._gathered).combine_chunks().to_batches():
                self._writer.write_batch(batch)
        self._gathered, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def end(self) -> None:
        self._writer.close()

    def described(self) -> RowFile:
        return RowFile(self._source, self._sink.record(self._path, self._rows), self._late, self._newest)


def queue_schema(spec: SourceSpec) -> pa.Schema:
    """The columns that the queue holds of a source.

    What it brings, and the event time if that is computed.
    """
    table, timestamps = spec.source.table, spec.timestamps
    if timestamps is None or timestamps.extract is None:
        return table.input_schema()
    brought = {field.name for field in table.input_schema()}
    return table.arrow_schema(brought | {timestamps.field})


def event_times(batch: pa.RecordBatch, timestamps: Timestamps) -> pa.Array:
    """The event time of each row, in microseconds."""
    column = batch.column(timestamps.field)
    unit = pa.timestamp("us", column.type.tz)
    return column.cast(unit).cast(pa.int64())


def _check_times(spec: SourceSpec, timestamps: Timestamps, part: str, times: pa.Array) -> None:
    """Refuse rows without an event time, and such that look like the row at the end of a stream."""
    wrong = _wrong_time(times)
    if wrong is not None:
        raise SourceFailed(
            f"source {spec.name}, part {part!r}: a row has {wrong} as its event time {timestamps.field}",
            left="the epoch was not committed, and is tried again",
            hint=f"every row needs a time before {END_OF_TIME:%Y-%m-%d}: correct or leave out such rows in "
            "the source, or give assign_timestamps a function that computes another time",
        )


def _wrong_time(times: pa.Array) -> str | None:
    """The event time that no row may have, in words; None if all are right."""
    if times.null_count:
        return "null"
    latest = pc.max(times).as_py()
    if latest < END_MICROS:
        return None
    try:
        return str(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=latest))
    except OverflowError:
        return f"{latest} microseconds after 1970, a year above 9999,"


def _as_batch(spec: SourceSpec, part: str, brought: Rows) -> pa.RecordBatch | None:
    """What a poll brought, with the columns of the queue; None for nothing."""
    if brought is None:
        return None
    where = f"source {spec.name}, part {part!r}"
    schema = spec.source.table.input_schema()
    rows = brought if isinstance(brought, pa.RecordBatch) else _from_rows(where, brought, schema)
    if not rows.num_rows:
        return None
    missing = [name for name in schema.names if name not in rows.schema.names]
    unknown = [name for name in rows.schema.names if name not in schema.names]
    if missing or unknown:
        raise _misfit(where, missing, unknown)
    if len(set(rows.schema.names)) < len(rows.schema.names):
        raise SourceFailed(f"{where}: what poll returned has a field twice: {', '.join(rows.schema.names)}")
    batch = _fitted(where, spec, rows, schema, "poll must bring what the table declares")
    return _with_event_time(where, spec, batch)


def _fitted(
    where: str, spec: SourceSpec, batch: pa.RecordBatch, schema: pa.Schema, hint: str
) -> pa.RecordBatch:
    try:
        return fit(spec.source.table.__table_name__, batch, schema)
    except PenstockError as error:
        raise type(error)(f"{where}: {error.what}", hint=hint) from error


def _from_rows(where: str, rows: Any, schema: pa.Schema) -> pa.RecordBatch:
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise SourceFailed(
            f"{where}: poll returned {type(rows).__name__}",
            hint="return a record batch, a list of dictionaries, or None",
        )
    known = set(schema.names)
    for row in rows:
        if not isinstance(row, Mapping):
            raise SourceFailed(
                f"{where}: poll returned a row of type {type(row).__name__}",
                hint="a row is a dictionary by field",
            )
        if row.keys() != known and (unknown := [name for name in row if name not in known]):
            raise _misfit(where, [], unknown)
    try:
        return from_rows(rows, schema)
    except TypeMismatch as error:
        raise TypeMismatch(
            f"{where}: poll returned a row that does not fit its table: {error.what}",
            hint=error.hint or "poll must bring what the table declares",
        ) from error


def _misfit(where: str, missing: Iterable[str], unknown: Iterable[str]) -> SourceFailed:
    parts = [f"has no {', '.join(missing)}"] if missing else []
    parts += [f"has {', '.join(map(repr, unknown))}, which the table does not"] if unknown else []
    return SourceFailed(
        f"{where}: what poll returned {' and '.join(parts)}",
        hint="poll must bring the fields that the table declares and are not derived",
    )


def _with_event_time(where: str, spec: SourceSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
    timestamps = spec.timestamps
    if timestamps is None or timestamps.extract is None:
        return batch
    hint = "it gets a record batch, and returns an array with one time for each row"
    try:
        made = timestamps.extract(batch)
    except Exception as error:
        what = f"{where}: the function for the event time failed: {type(error).__name__}: {error}"
        raise SourceFailed(what, hint=hint) from error
    made = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    if not isinstance(made, pa.Array) or len(made) != batch.num_rows:
        found = f"{len(made)} values" if isinstance(made, pa.Array) else type(made).__name__
        what = f"{where}: the function for the event time returned {found} for {batch.num_rows} rows"
        raise SourceFailed(what, hint=hint)
    schema = queue_schema(spec)
    columns = {name: batch.column(name) for name in batch.schema.names} | {timestamps.field: made}
    extended = pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names})
    return _fitted(where, spec, extended, schema, hint)

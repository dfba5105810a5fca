"""A stream's committed rows as a batch table, as of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.spark.flow import Batches, Flow, Scan
from penstock.spark.session import parallelism
from penstock.storage import Storage
from penstock.store import Store
from penstock.streams.layout import Layout
from penstock.streams.log.epoch_log import EpochLog, LogView, gone
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.log.row_files import EpochSlice, WantedRows
from penstock.streams.log.segments import between
from penstock.streams.model import Epoch, Pointer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SLICES_PER_CORE = 4
_LEAST = 1 << 20


@dataclass(frozen=True, slots=True)
class Pin:
    """An epoch, and the log as it was when somebody began to read at it."""

    epoch: int
    view: LogView


@contextmanager
def pinned(store: Store, storage: Storage, layout: Layout, epoch: int | None = None) -> Iterator[Pin]:
    """An epoch to read at, the newest one if none is given; nothing that it needs goes within the block."""
    with ReaderPositions(EpochLog(store, storage, layout)).hold("a batch read") as view:
        yield Pin(checked_epoch(layout.stream, view, epoch), view)


def read_table(
    spark: SparkSession,
    store: Store,
    storage: Storage,
    layout: Layout,
    source: str,
    epoch: int | Pin | None = None,
    late: bool | None = False,
    *,
    schema: pa.Schema,
) -> DataFrame:
    """The rows of a source in all retained epochs up to ``epoch``, or the newest one.

    ``schema`` says which columns. A DataFrame is worked on later than it is made: where epochs may be let go
    meanwhile, give what `pinned` gives, and use it inside its block.
    """
    log = EpochLog(store, storage, layout)
    slices = cut_table(log, epoch, parallelism(spark) * _SLICES_PER_CORE)

    def cut(columns: Sequence[str]) -> Sequence[SliceSplit]:
        wanted = WantedRows(source, tuple(columns), late)
        return [SliceSplit(storage, each, wanted) for each in slices]

    return Flow.scan(source, Scan(schema, cut)).frame(spark)


@dataclass(frozen=True, slots=True)
class SliceSplit:
    """A slice of the log as the split of a scan."""

    storage: Storage
    slice: EpochSlice
    wanted: WantedRows

    @property
    def rows(self) -> int:
        return self.slice.rows

    def batches(self) -> Batches:
        return self.slice.batches(self.storage, self.wanted)


def checked_epoch(stream: str, view: LogView, epoch: int | None) -> int:
    """The epoch to read at: ``epoch`` if it is committed and retained, the newest one if it is None."""
    if epoch is None:
        return view.committed
    if epoch > view.committed or epoch < 0:
        raise UsageError(
            f"stream {stream} has no epoch {epoch}",
            hint=f"the newest committed epoch is {view.committed}",
        )
    if epoch < view.floor and view.floor > 1:
        raise gone(stream, epoch, view.floor)
    return epoch


def cut_table(log: EpochLog, epoch: int | Pin | None, tasks: int) -> list[EpochSlice]:
    """The retained epochs up to ``epoch``, or the newest one, for about so many tasks."""
    if isinstance(epoch, Pin):
        return list(sliced(log, epoch.view, epoch.epoch, tasks))
    stream = log.layout.stream
    return log.read(lambda view: list(sliced(log, view, checked_epoch(stream, view, epoch), tasks)))


def sliced(log: EpochLog, view: LogView, upto: int, tasks: int) -> Iterator[EpochSlice]:
    """The retained epochs up to ``upto`` in slices of about the same size.

    The log is gone through segment by segment, and a slice of a segment is only its bounds: the driver holds
    little, however many epochs there are.
    """
    most = max(_LEAST, view.size // max(1, tasks))
    for segment in view.document.segments:
        if segment.first <= upto:
            epochs = log.segment_files.between(segment, view.floor, upto)
            yield from _cut(epochs, most, segment.pointer)
    yield from _cut(between(view.tail.epochs, view.floor, upto), most, None)


def _cut(epochs: tuple[Epoch, ...], most: int, segment: Pointer | None) -> Iterator[EpochSlice]:
    sizes = _running(epochs)
    for _, group in groupby(zip(sizes, epochs, strict=True), key=lambda pair: pair[0] // most):
        some = tuple(epoch for _, epoch in group)
        rows = sum(epoch.rows for epoch in some)
        yield EpochSlice(some[0].number, some[-1].number, rows, segment, () if segment else some)


def _running(epochs: tuple[Epoch, ...]) -> Iterator[int]:
    """The bytes before each epoch."""
    total = 0
    for epoch in epochs:
        yield total
        total += epoch.bytes

"""What the epoch log consists of: a small document in the store, and segments of epochs in storage.

A segment is a file that is written once. New ones are short; the newest are merged now and then, so that
each epoch is written about three times and the document names few files: with `FULL` epochs in a segment,
ten million epochs with rows fit into it.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Self

from penstock.core.codec import DocumentFormat, Members
from penstock.storage import Storage
from penstock.streams.layout import Layout
from penstock.streams.model import Epoch, Pointer

_CACHED = 4

SMALL = 512
FULL = 4096
"""How many epochs make a segment that is not merged any more."""
MANY = 8
"""How many small segments are merged at the latest."""

Epochs = tuple[Epoch, ...]


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A file of epochs, and the sums of those in it that are retained."""

    pointer: Pointer
    first: int
    last: int
    epochs: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, pointer: Pointer, epochs: Epochs) -> Self:
        rows, size = sum(each.rows for each in epochs), sum(each.bytes for each in epochs)
        return cls(pointer, epochs[0].number, epochs[-1].number, len(epochs), rows, size)


@dataclass(frozen=True, slots=True)
class LogDocument:
    """The head of the log, which is replaced as a whole by compare-and-set."""

    floor: int = 1
    """The oldest epoch that is retained: the one after the last that was let go."""
    cleared: int = 1
    """Files of epochs below are deleted; never above the floor."""
    swept: int = 0
    """The groups of epochs below were searched for files that belong to nothing."""
    taken: int = 0
    """The newest committed epoch that is in the log; later ones stand in decision records only."""
    ended: int | None = None
    """The epoch with which the stream ended."""
    rows: int = 0
    """Of all epochs that were ever taken over; the same for late rows."""
    late: int = 0
    turn: int = 0
    """Grows to make others, who read the document before, read it again."""
    segments: tuple[LogSegment, ...] = ()

    @property
    def newest(self) -> int:
        """The newest epoch of the segments, or the last that was let go."""
        return self.segments[-1].last if self.segments else self.floor - 1

    @property
    def size(self) -> int:
        return sum(segment.bytes for segment in self.segments)


def _flat(found: Members) -> Members:
    """Each segment as one list: there may be thousands."""
    segments = [[*each.pop("pointer").values(), *each.values()] for each in found["segments"]]
    return {**found, "segments": segments}


def _deep(found: Members) -> Members:
    pointer, sums = ([each.name for each in fields(kind)] for kind in (Pointer, LogSegment))
    segments = [
        {"pointer": dict(zip(pointer, each, strict=False)), **dict(zip(sums[1:], each[2:], strict=True))}
        for each in found["segments"]
    ]
    return {**found, "segments": segments}


LOG = DocumentFormat(
    LogDocument,
    "the head of a log of epochs",
    pack=_flat,
    unpack=_deep,
    number_last=True,
    hint="restore the store from a backup",
)


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """What is in the file of a segment."""

    epochs: Epochs


def _with_watermarks(found: Members) -> Members:
    """Segments that are older than watermarks have none."""
    for epoch in found["epochs"]:
        for brought in epoch["brought"]:
            brought.setdefault("watermarks", {})
    return found


SEGMENT = DocumentFormat(SegmentFile, "a segment of a log of epochs", unpack=_with_watermarks)


def merged_from(segments: Sequence[LogSegment]) -> int:
    """The index from which on the newest segments become one; their number if they stay as they are."""
    small = _run(segments, len(segments), SMALL)
    epochs = sum(segment.epochs for segment in segments[small:])
    if len(segments) - small < MANY and epochs < SMALL:
        return len(segments)
    middle = _run(segments, small, FULL)
    epochs += sum(segment.epochs for segment in segments[middle:small])
    return middle if epochs >= FULL else small


def _run(segments: Sequence[LogSegment], end: int, limit: int) -> int:
    """Where the segments of less than ``limit`` epochs begin that stand right before ``end``."""
    while end and segments[end - 1].epochs < limit:
        end -= 1
    return end


class SegmentFiles:
    """Reads and writes segments. It keeps those in memory that were asked for last. Safe for many threads."""

    def __init__(self, storage: Storage, layout: Layout) -> None:
        self._storage = storage
        self._layout = layout
        self._cache: OrderedDict[str, Epochs] = OrderedDict()
        self._lock = Lock()

    def read(self, pointer: Pointer) -> Epochs:
        """The epochs of a segment; `CorruptFile` if it is not there any more."""
        with self._lock:
            if (known := self._cache.get(pointer.path)) is not None:
                self._cache.move_to_end(pointer.path)
                return known
        return self._keep(pointer, read_segment(self._storage, pointer))

    def between(self, segment: LogSegment, first: int, last: int) -> Epochs:
        """The epochs of a segment from ``first`` to ``last``."""
        return between(self.read(segment.pointer), first, last)

    def write(self, epochs: Epochs) -> Iterator[LogSegment]:
        """Write epochs to new segments that are no longer than they may be."""
        for begin in range(0, len(epochs), FULL):
            yield self._write(epochs[begin : begin + FULL])

    def _write(self, epochs: Epochs) -> LogSegment:
        path = self._layout.segment(epochs[0].number, epochs[-1].number, secrets.token_hex(4))
        pointer = Pointer.write(self._storage, path, SEGMENT, SegmentFile(epochs))
        self._keep(pointer, epochs)
        return LogSegment.of(pointer, epochs)

    def _keep(self, pointer: Pointer, epochs: Epochs) -> Epochs:
        with self._lock:
            self._cache[pointer.path] = epochs
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        return epochs


def read_segment(storage: Storage, pointer: Pointer) -> Epochs:
    return pointer.read(storage, SEGMENT).epochs


def between(epochs: Epochs, first: int, last: int) -> Epochs:
    """Those from ``first`` to ``last`` of epochs in order."""
    begin = bisect_left(epochs, first, key=_number)
    return epochs[begin : bisect_left(epochs, last + 1, key=_number)]


def raised(document: LogDocument, floor: int, segment_files: SegmentFiles) -> LogDocument:
    """The document with a higher floor: segments below it are not named any more, sums are of the rest."""
    segments = []
    for segment in document.segments:
        if segment.first >= floor:
            segments.append(segment)
        elif rest := segment_files.between(segment, floor, segment.last):
            segments.append(LogSegment.of(segment.pointer, rest))
    return replace(document, floor=floor, segments=tuple(segments))


def _number(epoch: Epoch) -> int:
    return epoch.number

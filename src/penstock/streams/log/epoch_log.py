"""The epoch log: which epochs of a stream are committed and retained, and what they brought.

The truth about an epoch is its decision record (see `penstock.control.cluster`). Records are many and each is
a document of the store, so they are moved into the log: a small document that names segments in storage. What
is newer than the log is read from the records; readers see no difference.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.core.failpoints import reach
from penstock.errors import CorruptFile, EpochGone
from penstock.storage import Storage
from penstock.store.base import Store
from penstock.streams.layout import Layout
from penstock.streams.log.segments import LOG, LogDocument, LogSegment, SegmentFiles, merged_from, raised
from penstock.streams.log.tail import BrokenChain, Tail, read_chain
from penstock.streams.model import SCOPE, Epoch, Pointer

COMPACT_EVERY = 64
"""So many epochs are gathered before they are moved into the log."""
_ENDLESS = 2**63
_NOWHERE = Pointer("", "")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogView:
    """The log at one moment: the document and its version, and the epochs that it does not have yet."""

    document: LogDocument
    version: int
    tail: Tail

    @property
    def floor(self) -> int:
        return self.document.floor

    @property
    def committed(self) -> int:
        return self.tail.upto

    @property
    def newest(self) -> int:
        """The newest epoch with rows or the end; the one before the floor if there is none."""
        return self.tail.epochs[-1].number if self.tail.epochs else self.document.newest

    @property
    def size(self) -> int:
        """The bytes of row files of all epochs that are retained."""
        return self.document.size + sum(epoch.bytes for epoch in self.tail.epochs)

    @property
    def rows(self) -> int:
        """The rows of all epochs that ever were, retained or not."""
        return self.document.rows + sum(epoch.rows for epoch in self.tail.epochs)

    @property
    def late(self) -> int:
        """The late rows of all epochs that ever were, kept or only counted."""
        return self.document.late + sum(epoch.late for epoch in self.tail.epochs)


class EpochLog:
    """The committed epochs of one stream. Safe for many threads; any number of processes may have one."""

    def __init__(self, store: Store, storage: Storage, layout: Layout) -> None:
        self.store = store
        self.storage = storage
        self.layout = layout
        self.segment_files = SegmentFiles(storage, layout)
        keys = Keys(layout.cluster)
        self._room = Room(store, keys)
        self._records = Records(store, keys)
        self._tail = Tail()
        self._lock = threading.Lock()

    def committed(self) -> int:
        """The number of the newest committed epoch, whatever it brought; 0 before the first."""
        return self._room.read().scope(SCOPE).committed

    @property
    def floor(self) -> int:
        """The oldest epoch that is retained."""
        return self._document()[0].floor

    def size(self) -> int:
        """The bytes of row files of all epochs that are retained."""
        return self.view().size

    def end(self) -> int | None:
        """The epoch with which the stream ended, if it has."""
        return self.view().tail.ended

    def needed(self) -> int:
        """The oldest epoch whose decision record is still needed, since the log has not taken it over."""
        return self._document()[0].taken + 1

    def entries(self, after: int, upto: int | None = None) -> list[Epoch]:
        """The committed epochs after ``after``, up to ``upto``, that have rows or the end; oldest first.

        Raises `EpochGone` when some of them are not retained any more.
        """
        return self.read(lambda view: list(self._between(view, after, upto)))

    def read_on(self, after: int, take: Callable[[Iterator[Epoch]], T]) -> T:
        """What ``take`` makes of the epochs after ``after``; only as many are read as it asks for."""
        return self.read(lambda view: take(self._between(view, after, None)))

    def retained(self, view: LogView) -> Iterator[Epoch]:
        """All retained epochs, oldest first; segments are read one by one as they are asked for."""
        return self._between(view, view.floor - 1, None)

    def read(self, read: Callable[[LogView], T]) -> T:
        """What ``read`` makes of a view; again if a segment is missing because it was merged meanwhile."""
        while True:
            view = self.view()
            try:
                return read(view)
            except CorruptFile:
                if self._document()[1] == view.version:
                    raise

    def wait(self, after: int, timeout: float) -> int | None:
        """The newest epoch with rows or the end, as soon as that is after ``after``; None if time is over."""
        deadline, cursor = time.monotonic() + timeout, self.store.revision()
        while True:
            view = self.view()
            if view.newest > after:
                return view.newest
            while self._room.newest.scope(SCOPE).committed <= view.committed:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                cursor = self._room.watch(cursor, left).until

    def view(self) -> LogView:
        """The log as it is now."""
        while True:
            document, version = self._document()
            committed = max(self.committed(), document.taken)
            with self._lock:
                try:
                    return LogView(document, version, self._follow(document, committed))
                except BrokenChain as broken:
                    missing = broken
            if self._document()[1] == version:
                raise CorruptFile(
                    f"stream {self.layout.stream}: {missing}, and the log ends at epoch {document.taken}",
                    hint="restore the store from a backup",
                )

    def compact(self, *, force: bool = False) -> bool:
        """Move decided epochs into the log, if there are many new ones or ``force`` says so.

        Whether it did. Any process may do it at any time.
        """

        def take(view: LogView) -> LogDocument | None:
            document, tail = view.document, view.tail
            if tail.upto - document.taken < (1 if force else COMPACT_EVERY):
                return None
            segments = self._merged(document, tail.epochs)
            reach("log.written")
            return replace(
                document,
                taken=tail.upto,
                ended=tail.ended,
                rows=view.rows,
                late=view.late,
                segments=segments,
            )

        before = self.needed()
        return self.change(take).taken >= before

    def raise_floor(self, floor: Callable[[LogView], int]) -> LogDocument:
        """Let the epochs below ``floor`` go, as far as the log has them; it is asked again if need be."""

        def lift(view: LogView) -> LogDocument | None:
            wanted = min(floor(view), view.document.taken + 1)
            return raised(view.document, wanted, self.segment_files) if wanted > view.floor else None

        return self.change(lift)

    def change(self, rule: Callable[[LogView], LogDocument | None]) -> LogDocument:
        """Replace the document by what ``rule`` makes of it, or leave it where that is None.

        What the rule reads or writes elsewhere it does after the document was read: if anybody changed the
        document meanwhile, the rule is asked again.
        """
        while True:
            view = self.view()
            after = rule(view)
            if after is None:
                return view.document
            if self.store.cas(self.layout.log_key, view.version, LOG.encode(after)) is not None:
                return after

    def _document(self) -> tuple[LogDocument, int]:
        found = self.store.get(self.layout.log_key)
        if found is None:
            return LogDocument(), 0
        return LOG.decode(found.key, found.value), found.version

    def _follow(self, document: LogDocument, committed: int) -> Tail:
        """The tail up to ``committed``; only records that were not seen before are read."""
        tail = self._tail.behind(document)
        if committed > tail.upto:
            tail = tail.extended(read_chain(self._records, tail.upto, committed))
        self._tail = tail
        return tail

    def _merged(self, document: LogDocument, fresh: tuple[Epoch, ...]) -> tuple[LogSegment, ...]:
        """The segments with new epochs, the newest of them merged where they are many."""
        if not fresh:
            return document.segments
        # To the rule they are one more segment, though they are not written before they are merged.
        unwritten = LogSegment.of(_NOWHERE, fresh)
        start = min(merged_from([*document.segments, unwritten]), len(document.segments))
        old = (
            epoch
            for segment in document.segments[start:]
            for epoch in self.segment_files.between(segment, document.floor, segment.last)
        )
        return (*document.segments[:start], *self.segment_files.write((*old, *fresh)))

    def _between(self, view: LogView, after: int, upto: int | None) -> Iterator[Epoch]:
        if after < view.floor - 1:
            raise gone(self.layout.stream, after + 1, view.floor)
        last = _ENDLESS if upto is None else upto
        for segment in view.document.segments:
            if segment.last > after and segment.first <= last:
                yield from self.segment_files.between(segment, max(after + 1, view.floor), last)
        yield from (epoch for epoch in view.tail.epochs if after < epoch.number <= last)


def gone(stream: str, epoch: int, floor: int) -> EpochGone:
    """The error of a reader that wants what was let go."""
    return EpochGone(
        f"stream {stream}: epoch {epoch} is not retained any more; the oldest that is retained is {floor}",
        left="what was read before is as it was",
        hint=f"begin at epoch {floor} with a new checkpoint; what a reader needs is kept if it has a name "
        "(option reader), and everything longer with stream.retain_for and stream.retain_bytes",
    )

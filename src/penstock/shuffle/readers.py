"""The open journals of a slice: not more at once than a process may have files."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.errors import JournalGap
from penstock.journals import Chunk, JournalReader
from penstock.shuffle.columns import Piece
from penstock.sources.journals import JournalSource

if TYPE_CHECKING:
    from penstock.shuffle.slices import Read

_log = logging.getLogger(__name__)

_OPEN = 64


class Shelf:
    """Readers that stay open in a Python worker from one epoch to the next, those that were used last.

    One that goes on in the middle of a compressed fragment would have to uncompress all that comes before. It
    goes on here if the next epoch starts where it stands; else it is closed and the journal opened anew.
    """

    def __init__(self, most: int = _OPEN, idle: float = 60.0) -> None:
        self._most = most
        self._idle = idle
        self._kept: OrderedDict[tuple[str, str], tuple[int, float, JournalReader]] = OrderedDict()

    def take(self, key: tuple[str, str], offset: int) -> JournalReader | None:
        """The reader of a journal that stands at exactly this offset, if it is here."""
        known = self._kept.pop(key, None)
        if known is None:
            return None
        if known[0] == offset:
            return known[2]
        known[2].close()
        return None

    def keep(self, key: tuple[str, str], offset: int, reader: JournalReader) -> None:
        if (before := self._kept.pop(key, None)) is not None:
            before[2].close()
        now = time.monotonic()
        self._kept[key] = offset, now, reader
        while len(self._kept) > self._most or next(iter(self._kept.values()))[1] < now - self._idle:
            _, (_, _, oldest) = self._kept.popitem(last=False)
            oldest.close()


SHELF = Shelf()
"""The shelf of this process."""


class Readers:
    """Readers by journal; those that were used last stay open."""

    def __init__(self, sources: Mapping[str, JournalSource]) -> None:
        self._sources = sources
        self._open: OrderedDict[Read, tuple[int, JournalReader]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for read, (offset, reader) in self._open.items():
            if error is None:
                SHELF.keep(self._key(read), offset, reader)
            else:
                reader.close()
        self._open.clear()

    def next(self, read: Read, offset: int, size: int) -> tuple[Chunk | None, int]:
        """Lines from ``offset`` on, None if there are none; and how many bytes before them are lost.

        A gap in the journal is an error unless the source skips it.
        """
        lost = 0
        while True:
            try:
                chunk = self._reader(read, offset + lost).read(size)
            except JournalGap as gap:
                self._allow(read, gap)
                lost = gap.end - offset
                continue
            if chunk is None:
                self._close(read)
            else:
                self._keep(read, chunk.end)
            return chunk, lost

    def again(self, read: Read, begin: int, end: int, size: int) -> Iterator[Piece]:
        """The lines from ``begin`` to ``end`` once more, and maybe a few after them.

        Bytes that are gone are an error unless the source skips them.
        """
        reader = self._sources[read.source].journals.reader(read.journal, begin)
        try:
            while begin < end:
                try:
                    chunk = reader.read(min(size, end - begin))
                except JournalGap as gap:
                    self._allow(read, gap)
                    begin = gap.end
                    reader.close()
                    reader = self._sources[read.source].journals.reader(read.journal, begin)
                    continue
                if chunk is None:
                    raise JournalGap(
                        f"journal {read.journal}: the bytes {begin:,} to {end:,} of a transaction are gone",
                        left="the epoch was not committed, and is tried again",
                        hint="bring back the fragments that are missing",
                    )
                yield Piece(read.journal, chunk.begin, chunk.data)
                begin = chunk.end
        finally:
            reader.close()

    def _allow(self, read: Read, gap: JournalGap) -> None:
        if self._sources[read.source].on_gap == "fail":
            raise gap
        _log.warning("%s; skipped", gap.what)

    def _reader(self, read: Read, offset: int) -> JournalReader:
        known = self._open.get(read)
        if known is not None and known[0] == offset:
            return known[1]
        self._close(read)
        reader = SHELF.take(self._key(read), offset)
        if reader is None:
            reader = self._sources[read.source].journals.reader(read.journal, offset)
        self._open[read] = offset, reader
        return reader

    def _key(self, read: Read) -> tuple[str, str]:
        return self._sources[read.source].journals.root, read.journal

    def _keep(self, read: Read, offset: int) -> None:
        self._open[read] = offset, self._open.pop(read)[1]
        while len(self._open) > _OPEN:
            self._close(next(iter(self._open)))

    def _close(self, read: Read) -> None:
        known = self._open.pop(read, None)
        if known is not None:
            known[1].close()

"""The open journals of a slice: not more at once than a process may have files."""

from __future__ import annotations

import logging
import resource
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.errors import JournalGap
from penstock.journals import Chunk, JournalReader
from penstock.journals.format.fragments import plan
from penstock.journals.shuffle.sequencing.columns import JournalLines
from penstock.sources.hosting import Host, Key
from penstock.sources.journals import JournalSource

if TYPE_CHECKING:
    from penstock.journals.reader.journals import Survey
    from penstock.sources.base import PartName

_log = logging.getLogger(__name__)

_FEW = 4
_PAGE = 1000
_pages: dict[tuple[str, str], int] = {}
"""How many requests a listing took, by root and prefix."""
_DECOMPRESSORS = 64
_LEAST = 1 << 20


def _most() -> int:
    """How many files may be open: a part of what the system allows, most often."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1024 if allowed == resource.RLIM_INFINITY else max(256, min(1024, allowed // 4))


def _weight(reader: JournalReader) -> int:
    """A decompressor counts for several files: it has megabytes of its own."""
    return max(1, _OPEN // _DECOMPRESSORS) if reader.is_heavy else 1


_OPEN = _most()
SHELF: Host[JournalReader] = Host(_OPEN, weigh=_weight)
"""Readers that stay open in this process from one epoch to the next, by where they stand.

One that began anew in the middle of a compressed fragment would have to uncompress all that comes before.
"""


class Readers:
    """Readers by journal; those that were used last stay open."""

    def __init__(self, sources: Mapping[str, JournalSource]) -> None:
        self._sources = sources
        self._open: OrderedDict[PartName, tuple[int, JournalReader, int]] = OrderedDict()
        self._weight = 0
        self._surveys: dict[str, Survey] = {}
        self._heavy: set[str] = set()
        self.unfinished: dict[PartName, int] = {}
        """Where lines begin whose ends are not there yet."""

    def expect(self, reads: Mapping[PartName, int]) -> None:
        """Prepare to read these, from their offsets on.

        Where each would be a request to an object store, one listing may find all of them: if they are many,
        and not few of all that there are.
        """
        wanted: dict[str, dict[str, int]] = {}
        for read, offset in reads.items():
            wanted.setdefault(read.source, {})[read.part] = offset
        for name, offsets in wanted.items():
            source = self._sources[name]
            key = source.journals.root, source.prefix
            if len(offsets) <= max(_FEW, _pages.get(key, 0)):
                continue
            survey = source.journals.survey(offsets, source.prefix)
            if survey is not None:
                self._surveys[name] = survey
                _pages[key] = survey.objects // _PAGE

    def __enter__(self) -> Self:
        SHELF.sweep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for read, (offset, reader, _) in self._open.items():
            reader.survey = None
            if error is None:
                SHELF.keep(self._key(read), offset, reader)
            else:
                reader.close()
        self._open.clear()
        self._weight = 0

    def next(self, read: PartName, offset: int, size: int) -> tuple[Chunk | None, int]:
        """Lines from ``offset`` on, None if there are none; and how many bytes before them are lost.

        A gap in the journal is an error unless the source skips it.
        """
        lost = 0
        while True:
            try:
                reader = self._reader(read, offset + lost)
                chunk = reader.read(size)
            except JournalGap as gap:
                self._allow(read, gap)
                lost = gap.end - offset
                continue
            if chunk is None:
                if reader.unfinished:
                    self.unfinished[read] = reader.offset
                self._close(read)
            else:
                self._keep(read, chunk.end)
            return chunk, lost

    def least(self, read: PartName, others: int) -> int:
        """How many bytes to read at the least: beginning a compressed fragment anew must pay."""
        return _LEAST if read.source in self._heavy and others >= _DECOMPRESSORS else 0

    def put_back(self, read: PartName, data: bytes) -> None:
        """Take back the end of what was read last."""
        known = self._open.get(read)
        if known is not None:
            offset, reader, weight = known
            reader.put_back(data)
            self._open[read] = offset - len(data), reader, weight

    def lacking(self, read: PartName, begin: int, end: int) -> int:
        """How many of these bytes are gone, if the source skips what is gone; otherwise nobody looks."""
        source = self._sources[read.source]
        if source.on_gap == "fail" or begin >= end:
            return 0
        fragments = source.journals.everything(read.part)
        known = max((fragment.end for fragment in fragments), default=begin)
        _, gaps = plan(fragments, begin)
        found = sum(max(0, min(gap.end, end) - gap.begin) for gap in gaps)
        return found + max(0, end - max(known, begin))

    def again(self, read: PartName, begin: int, end: int, size: int) -> Iterator[JournalLines]:
        """The lines from ``begin`` to ``end`` once more, and maybe a few after them.

        Bytes that are gone are an error unless the source skips them.
        """
        reader = self._sources[read.source].journals.reader(read.part, begin)
        try:
            while begin < end:
                try:
                    chunk = reader.read(min(size, end - begin))
                except JournalGap as gap:
                    self._allow(read, gap)
                    begin = gap.end
                    reader.close()
                    reader = self._sources[read.source].journals.reader(read.part, begin)
                    continue
                if chunk is None:
                    raise JournalGap(
                        f"journal {read.part}: the bytes {begin:,} to {end:,} of a transaction are gone",
                        left="the epoch was not committed, and is tried again",
                        hint="bring back the fragments that are missing",
                    )
                yield JournalLines(read.part, chunk.begin, chunk.data)
                begin = chunk.end
        finally:
            reader.close()

    def _allow(self, read: PartName, gap: JournalGap) -> None:
        if self._sources[read.source].on_gap == "fail":
            raise gap
        _log.warning("%s; skipped", gap.what)

    def _reader(self, read: PartName, offset: int) -> JournalReader:
        known = self._open.get(read)
        if known is not None and known[0] == offset:
            return known[1]
        self._close(read)
        reader = SHELF.take(self._key(read), offset)
        if reader is None:
            reader = self._sources[read.source].journals.reader(read.part, offset)
        reader.survey = self._surveys.get(read.source)
        self._open[read] = offset, reader, 0
        return reader

    def _key(self, read: PartName) -> Key:
        return "journals", self._sources[read.source].journals.root, read.part

    def _keep(self, read: PartName, offset: int) -> None:
        _, reader, weight = self._open.pop(read)
        if reader.is_heavy:
            self._heavy.add(read.source)
        self._weight += _weight(reader) - weight
        self._open[read] = offset, reader, _weight(reader)
        # Journals have their turn one after the other: the one that was used last is needed last.
        if self._weight > _OPEN:
            self._close(read)

    def _close(self, read: PartName) -> None:
        known = self._open.pop(read, None)
        if known is not None:
            self._weight -= known[2]
            known[1].close()

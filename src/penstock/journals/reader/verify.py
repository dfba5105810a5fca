"""Checking a journal: every fragment against its name, every overlap, every line.

It streams, and does not stop at the first problem.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile

from penstock.errors import BadInput, CorruptFile
from penstock.journals.format import names
from penstock.journals.format.contents import BLOCK, Content, difference
from penstock.journals.format.documents import parse, stamp_of
from penstock.journals.format.fragments import Fragment, FragmentPiece, plan
from penstock.journals.format.hints import decode_hints
from penstock.journals.format.spool import SpoolReader
from penstock.journals.format.uuids import Flag
from penstock.journals.reader import listing
from penstock.journals.reader.journals import Journals
from penstock.journals.reader.reading import LONGEST_LINE

_MOST = 1000
"""Problems of one journal that are told one by one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, in which file (of which there is none for a gap), at which offset of the journal."""

    kind: str
    what: str
    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class JournalReport:
    """A journal as it was found. Problems beyond the first thousand are only counted, in ``more``."""

    journal: str
    fragments: int
    bytes: int
    documents: int
    begin: int
    head: int
    problems: tuple[Problem, ...]
    more: int = 0

    @property
    def is_right(self) -> bool:
        return not self.problems


def verify_all(journals: Journals) -> Iterator[JournalReport]:
    """A report on each folder with fragments, also on those that cannot be journals."""
    for name in listing.folders(journals.storage, ""):
        wrong = listing.misplaced(journals.storage, name)
        if wrong is None:
            yield verify(journals, name)
        else:
            problem = Problem("name", wrong.what, name or journals.root, 0)
            yield JournalReport(name or journals.root, 0, 0, 0, 0, 0, (problem,))


def verify(journals: Journals, journal: str) -> JournalReport:
    """Read all of a journal and report every problem. A journal that is not there has none."""
    report = _Verification(journals, names.check(journal)).report()
    if any(problem.kind in ("gap", "unreadable") for problem in report.problems):
        # Something may have been rolled over while it was looked at.
        return _Verification(journals, journal).report()
    return report


class _Verification:
    def __init__(self, journals: Journals, journal: str) -> None:
        self._storage = journals.storage
        self.journal = journal
        self._problems: list[Problem] = []
        self._count = 0
        self._lines = _Lines(self)
        self._known = list(self._found())

    def report(self) -> JournalReport:
        begin = min((fragment.begin for fragment in self._known), default=0)
        pieces, gaps = plan(self._known, begin)
        for gap in gaps:
            what = f"the bytes {gap.begin:,} to {gap.end:,} are in no fragment"
            self.tell("gap", what, self.journal, gap.begin)
        for piece in pieces:
            self._lines.begin_at(piece.begin)
            for offset, data in self._bytes(piece.fragment):
                skipped = max(0, piece.begin - offset)
                if skipped < len(data):
                    self._lines.take(data[skipped:], piece.fragment.path)
        self._lines.end()
        used = {piece.fragment for piece in pieces}
        for fragment in self._known:
            if fragment not in used and fragment.end > fragment.begin:
                for _ in self._bytes(fragment):
                    pass
            self._compare(fragment, pieces)
        return JournalReport(
            self.journal,
            sum(not fragment.is_spool for fragment in self._known),
            sum(piece.end - piece.begin for piece in pieces),
            self._lines.documents,
            begin,
            max((fragment.end for fragment in self._known), default=0),
            tuple(sorted(self._problems, key=lambda problem: problem.offset)),
            self._count - len(self._problems),
        )

    def tell(self, kind: str, what: str, file: str, offset: int) -> None:
        self._count += 1
        if len(self._problems) < _MOST:
            self._problems.append(Problem(kind, what, file, offset))

    def _found(self) -> Iterator[Fragment]:
        for file in sorted(listing.files(self._storage, self.journal), key=lambda file: file.path):
            try:
                fragment = listing.as_fragment(self._storage, file)
            except BadInput as error:
                self.tell("name", error.what, file.path, 0)
                continue
            if fragment is not None:
                yield fragment

    def _bytes(self, fragment: Fragment) -> Iterator[tuple[int, bytes]]:
        """All bytes of a fragment with their offsets, as far as they can be had; what is wrong is told."""
        offset = fragment.begin
        try:
            for data in _blocks(self._opened(fragment), fragment.end - fragment.begin):
                yield offset, data
                offset += len(data)
        except BadInput as error:
            self.tell("extension", error.what, fragment.path, offset)
        except CorruptFile as error:
            self.tell("content", error.what, fragment.path, offset)
        except OSError as error:
            self.tell("unreadable", f"it cannot be read: {error}", fragment.path, offset)

    def _opened(self, fragment: Fragment) -> Content | _Spooled:
        if fragment.is_spool and self._storage.local is not None:
            return _Spooled(SpoolReader(self._storage.local / fragment.path), fragment)
        return Content(self._storage, fragment)

    def _compare(self, fragment: Fragment, pieces: Sequence[FragmentPiece]) -> None:
        """Compare a fragment with the others, where bytes that it has too are read from these."""
        first = bisect_right(pieces, fragment.begin, key=lambda piece: piece.end)
        for piece in takewhile(lambda piece: piece.begin < fragment.end, pieces[first:]):
            begin, end = max(piece.begin, fragment.begin), min(piece.end, fragment.end)
            if piece.fragment != fragment and begin < end:
                difference = self._difference(fragment, piece.fragment, begin, end)
                if difference is not None:
                    what = f"from offset {difference:,} on it has other bytes than {piece.fragment.path}"
                    self.tell("overlap", what, fragment.path, difference)

    def _difference(self, one: Fragment, other: Fragment, begin: int, end: int) -> int | None:
        """The first offset at which two fragments differ. What cannot be read is told elsewhere."""
        try:
            with closing(self._opened(one)) as first, closing(self._opened(other)) as second:
                return difference(first, second, begin, end)
        except (BadInput, CorruptFile, OSError):
            return None


class _Lines:
    """Checks lines as their bytes come."""

    def __init__(self, verification: _Verification) -> None:
        self._verification = verification
        self._rest = bytearray()
        self._offset = 0
        self._file = ""
        self.documents = 0

    def begin_at(self, offset: int) -> None:
        """What comes next is at this offset. After missing bytes a line is not joined with what follows."""
        if offset != self._offset + len(self._rest):
            self.end()
            self._offset = offset

    def take(self, data: bytes, file: str) -> None:
        self._file = file
        self._rest += data
        end = self._rest.rfind(b"\n") + 1
        if not end and len(self._rest) > LONGEST_LINE:
            self._tell("line", f"the line is longer than {LONGEST_LINE >> 20} MiB")
            self._offset += len(self._rest)
            self._rest.clear()
        if end:
            for line in bytes(self._rest[:end]).split(b"\n")[:-1]:
                self._check(line)
                self._offset += len(line) + 1
            del self._rest[:end]

    def end(self) -> None:
        if self._rest:
            self._tell("truncated", f"the line has no end: {len(self._rest):,} bytes")
            self._offset += len(self._rest)
            self._rest.clear()

    def _check(self, line: bytes) -> None:
        try:
            document = parse(line)
        except BadInput as error:
            self._tell("line", error.what)
            return
        self.documents += 1
        try:
            if stamp_of(document).kind is Flag.ACK:
                decode_hints(document, self._verification.journal)
        except BadInput as error:
            self._tell("uuid", error.what)

    def _tell(self, kind: str, what: str) -> None:
        self._verification.tell(kind, what, self._file, self._offset)


class _Spooled:
    """What a spool has announced, read like a fragment."""

    def __init__(self, reader: SpoolReader, fragment: Fragment) -> None:
        self._reader = reader
        self._end = fragment.end
        self.position = fragment.begin

    def read(self, size: int) -> bytes:
        data = self._reader.read(self.position, min(size, self._end - self.position))
        self.position += len(data)
        return data

    def go_to(self, offset: int) -> None:
        self.position = offset

    def close(self) -> None:
        self._reader.close()


def _blocks(content: Content | _Spooled, size: int) -> Iterator[bytes]:
    try:
        while size:
            data = content.read(BLOCK)
            size -= len(data)
            yield data
    finally:
        content.close()

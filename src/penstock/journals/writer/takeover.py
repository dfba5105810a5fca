"""The greatest clock that a producer has in the journals below a root, where no record tells it.

Whoever goes on as a producer must pass it: readers take documents with clocks that were passed already for
repetitions. So all that is there is read, also what was appended and not announced, and what acks hint at.

Where the beginning of a journal is gone, or bytes within it are, the producer may have had documents there.
If it has any behind them, these have the greater clocks. Otherwise the journal's last document, whoever wrote
it, came later than what is gone, and its clock is passed; and where there is none, the time at which its last
file was written.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from penstock.errors import BadInput
from penstock.journals.format.contents import BLOCK, Content
from penstock.journals.format.documents import parse, stamp_of
from penstock.journals.format.fragments import Fragment, FragmentPiece, plan
from penstock.journals.format.hints import decode_hints
from penstock.journals.format.spool import HEADER
from penstock.journals.format.uuids import Flag, producer_text, time_clock
from penstock.journals.reader import listing
from penstock.storage import Storage


def greatest_clock(storage: Storage, producer: int) -> int:
    """A clock that is not below any of the producer's; 0 if it has written nothing here.

    Raises what reading raises: then it cannot be known.
    """
    return max((_Search(storage, name, producer).clock() for name in listing.folders(storage, "")), default=0)


class _Search:
    """Looks through one journal."""

    def __init__(self, storage: Storage, journal: str, producer: int) -> None:
        self._storage = storage
        self._journal = journal
        self._producer = producer
        # Producers stand in UUIDs and in hints, in two spellings.
        self._text = producer_text(producer).encode()
        self._encoded = base64.b64encode(producer.to_bytes(6, "big"))
        self._greatest = 0
        self._is_behind_gap = True
        self._found_behind = False
        self._last = b""

    def clock(self) -> int:
        fragments = listing.fragments(self._storage, self._journal)
        pieces, gaps = plan([_whole(self._storage, each) for each in fragments], 0)
        # A journal that was never written to begins with nothing.
        gap = max((each.end for each in gaps), default=0)
        rest, position = b"", 0
        for piece in pieces:
            if piece.begin != position:
                rest = b""
            self._is_behind_gap = piece.begin >= gap
            for data in self._blocks(piece):
                rest = self._take(rest + data)
            position = piece.end
        if not gap or self._found_behind:
            return self._greatest
        return max(self._greatest, self._last_clock(fragments))

    def _take(self, data: bytes) -> bytes:
        """Look at whole lines; what is left of the last one."""
        end = data.rfind(b"\n") + 1
        if not end:
            return data
        lines, rest = data[:end], data[end:]
        self._last = lines[lines.rfind(b"\n", 0, end - 1) + 1 :]
        if self._text in lines.lower() or self._encoded in lines:
            for line in lines.split(b"\n"):
                if self._text in line.lower() or self._encoded in line:
                    self._look(line)
        return rest

    def _look(self, line: bytes) -> None:
        # No reader gets past what is malformed either.
        with suppress(BadInput):
            document = parse(line)
            stamp = stamp_of(document)
            if stamp.producer == self._producer and stamp.clock:
                self._greatest = max(self._greatest, stamp.clock)
                self._found_behind = self._found_behind or self._is_behind_gap
            for hint in decode_hints(document, self._journal) if stamp.kind is Flag.ACK else ():
                if hint.producer == self._producer:
                    self._greatest = max(self._greatest, hint.clock)

    def _last_clock(self, fragments: list[Fragment]) -> int:
        try:
            return stamp_of(parse(self._last)).clock
        except BadInput:
            written = max(self._path(each).stat().st_mtime for each in fragments)
            return time_clock(datetime.fromtimestamp(written, UTC))

    def _blocks(self, piece: FragmentPiece) -> Iterator[bytes]:
        if piece.fragment.is_spool:
            yield from _spooled(self._path(piece.fragment), piece)
            return
        content = Content(self._storage, piece.fragment)
        try:
            content.go_to(piece.begin)
            while content.position < piece.end:
                yield content.read(BLOCK)
        finally:
            content.close()

    def _path(self, fragment: Fragment) -> Path:
        assert self._storage.local is not None
        return self._storage.local / fragment.path


def _whole(storage: Storage, fragment: Fragment) -> Fragment:
    """A spool up to its last byte: what was not announced is when the next one appends."""
    if not fragment.is_spool or storage.local is None:
        return fragment
    size = (storage.local / fragment.path).stat().st_size - HEADER
    end = max(fragment.end, fragment.begin + size)
    return Fragment(fragment.begin, end, "", fragment.extension, fragment.path)


def _spooled(path: Path, piece: FragmentPiece) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(HEADER + piece.begin - piece.fragment.begin)
        while data := file.read(BLOCK):
            yield data

"""Reading a journal in chunks of whole lines, while others append to it and roll it over."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from penstock.errors import BadInput, JournalGap, JournalTruncated, PenstockError, TransientError, UsageError
from penstock.journals.format import names
from penstock.journals.format.contents import BLOCK, Content, check_agreement, open_checked, place
from penstock.journals.format.fragments import Codec, Fragment, FragmentPiece, cover, head
from penstock.journals.format.spool import SpoolReader

if TYPE_CHECKING:
    from penstock.journals.reader.journals import Journals, Survey

LONGEST_LINE = 64 << 20
_ATTEMPTS = 5
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines: the bytes ``begin`` to ``end`` of a journal."""

    begin: int
    end: int
    data: bytes


class JournalReader:
    """Reads a journal from an offset on, which must be the begin of a line.

    Memory is bounded by the limit of a read, or by the longest line. A fragment is checked as a whole, length
    and SHA-1, before its first byte is handed out; the process remembers which ones it has found right. What
    is not a fragment yet is handed out as soon as it is durable.
    """

    def __init__(self, journals: Journals, journal: str, offset: int = 0) -> None:
        if offset < 0:
            raise UsageError(f"a journal has no offset {offset}", hint="begin with 0")
        self.journal = names.check(journal)
        self.offset = offset
        self._journals = journals
        self._buffer = bytearray()
        self._pieces: deque[FragmentPiece] = deque()
        self._known: Sequence[Fragment] = ()
        self._open: _Bytes | None = None
        self.survey: Survey | None = None
        """Where to look for fragments first; without it, the journal is listed by itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, limit: int) -> Chunk | None:
        """The next whole lines: about ``limit`` bytes at most, but at least one line. None: nothing now.

        A line without its end is not there yet. A journal that is not there, or not any more, reads as
        nothing now. Raises `JournalGap` where bytes are missing, `JournalTruncated` if the journal ends
        before this reader's offset, `CorruptFile` for a fragment that is not what its name says or has other
        bytes than another one, `BadInput` for a line of more than 64 MiB. What lies before is handed out
        first, and after an error the reader is where it was.
        """
        limit = max(limit, 1)
        while (size := self._lines_within(limit)) == 0:
            if len(self._buffer) > LONGEST_LINE:
                raise self._too_long()
            whole = self._buffer.rfind(b"\n") + 1
            try:
                data = self._more(max(limit - len(self._buffer), min(len(self._buffer), BLOCK), 1))
            except PenstockError:
                if not whole:
                    raise
                data = b""
            if not data:
                size = whole
                break
            self._buffer += data
        return self._take(size) if size else None

    def put_back(self, data: bytes) -> None:
        """Take back the last bytes that were handed out, from the begin of a line on: they are read again."""
        self._buffer[:0] = data
        self.offset -= len(data)

    @property
    def unfinished(self) -> int:
        """How many bytes there are of a line whose end is not there yet, if the last read found nothing."""
        return len(self._buffer)

    @property
    def is_heavy(self) -> bool:
        """Whether it holds a decompressor, which has megabytes of its own."""
        return self._open is not None and self._open.is_heavy

    def close(self) -> None:
        """Let go of files. The next read opens them again."""
        self._pieces.clear()
        if self._open is not None:
            self._open.close()
            self._open = None

    def _lines_within(self, limit: int) -> int:
        """The size of the whole lines to hand out; 0 if more must be read first."""
        if len(self._buffer) < limit:
            return 0
        return self._buffer.rfind(b"\n", 0, limit) + 1 or self._buffer.find(b"\n", limit) + 1

    def _take(self, size: int) -> Chunk:
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        chunk = Chunk(self.offset, self.offset + size, data)
        self.offset = chunk.end
        return chunk

    @property
    def _position(self) -> int:
        """Where the next byte comes from."""
        return self.offset + len(self._buffer)

    def _more(self, size: int) -> bytes:
        """Bytes from the position on; none if there are none now."""
        while True:
            if self._open is None:
                self._open = self._next()
            if self._open is None:
                return b""
            is_over = self._open.is_over()
            data = self._open.read(self._position, size)
            if data or not is_over:
                return data
            self._open.close()
            self._open = None

    def _next(self) -> _Bytes | None:
        """What holds the byte at the position; None if nothing does now.

        What a roll-over is just changing, or somebody is just uploading, is looked at again before it is
        called missing.
        """
        for attempt in range(_ATTEMPTS):
            last = attempt == _ATTEMPTS - 1
            try:
                if not self._pieces:
                    self._pieces.extend(self._found(anew=attempt > 0))
                return self._opened(self._pieces.popleft()) if self._pieces else None
            except FileNotFoundError as error:
                self._pieces.clear()
                if last:
                    what = f"{self.journal}: {error.filename or error} was listed and is not there"
                    raise TransientError(what, hint="try again") from error
            except (JournalGap, JournalTruncated):
                if last:
                    raise
            time.sleep(_PAUSE * attempt)
        return None

    def _found(self, anew: bool) -> list[FragmentPiece]:
        if self.survey is None or anew:
            fragments = self._journals.everything(self.journal)
        else:
            fragments = self.survey.fragments(self.journal)
        self._known = fragments
        end = head(fragments)
        if end is None or self._position == end:
            return []
        if self._position > end:
            return self._beyond(fragments, end)
        try:
            return cover(fragments, self._position)
        except JournalGap as gap:
            what = f"journal {self.journal}: {gap.what}"
            raise JournalGap(what, left=gap.left, hint=gap.hint, begin=gap.begin, end=gap.end) from None

    def _beyond(self, fragments: Sequence[Fragment], end: int) -> list[FragmentPiece]:
        """Nothing, if a spool has these bytes and only its announcement was lost with a power failure."""
        spool = next((fragment for fragment in fragments if fragment.is_spool), None)
        if spool is not None:
            reader = _SpoolBytes(self._journals, spool)
            try:
                if self._position <= reader.written():
                    return []
            finally:
                reader.close()
        raise JournalTruncated(
            f"journal {self.journal} ends at {end:,}, but was to be read from {self._position:,} on",
            left="the journal as it is: it may have been made anew, or lost its last fragments",
            hint="bring back the fragments that are missing, or begin again at an offset that it has",
        )

    def _opened(self, piece: FragmentPiece) -> _Bytes:
        if piece.fragment.is_spool:
            return _SpoolBytes(self._journals, piece.fragment)
        check_agreement(self._journals.storage, piece.fragment, self._known)
        return _FragmentBytes(self._journals, piece)

    def _too_long(self) -> BadInput:
        path = place(self._journals.storage, self.journal)
        return BadInput(
            f"{path}: the line at offset {self.offset:,} is longer than {LONGEST_LINE >> 20} MiB",
            hint="`penstock journal verify` shows what else is wrong with the journal",
        )


class _Bytes(Protocol):
    """Where bytes of a journal come from."""

    @property
    def is_heavy(self) -> bool: ...

    def is_over(self) -> bool:
        """Whether what can be read now is all that will ever come."""

    def read(self, offset: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class _FragmentBytes:
    def __init__(self, journals: Journals, piece: FragmentPiece) -> None:
        self.is_heavy = piece.fragment.codec is not Codec.RAW
        self._content: Content = open_checked(journals.storage, piece.fragment)
        try:
            self._content.go_to(piece.begin)
        except BaseException:
            self._content.close()
            raise

    def is_over(self) -> bool:
        return True

    def read(self, offset: int, size: int) -> bytes:
        assert offset == self._content.position
        return self._content.read(max(size, 1))

    def close(self) -> None:
        self._content.close()


class _SpoolBytes(SpoolReader):
    is_heavy = False

    def __init__(self, journals: Journals, fragment: Fragment) -> None:
        assert journals.storage.local is not None
        super().__init__(journals.storage.local / fragment.path)

    def is_over(self) -> bool:
        return self.is_removed()

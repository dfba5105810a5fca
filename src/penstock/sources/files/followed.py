"""A file that others append to, and how it is known again: by its inode and by bytes that were read of it."""

from __future__ import annotations

import hashlib
import os
import re
import weakref
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

_KEPT = 256


@dataclass(frozen=True, slots=True)
class FilePosition:
    """How far a file was read. ``mark`` is a digest of its first bytes and of those before ``offset``.

    A file system gives the inode of a file that was removed to the next one; the mark tells them apart, and
    tells a file that was emptied and filled again.
    """

    inode: int
    offset: int = 0
    row: int = 0
    mark: str = ""


class Followed:
    """An open file, which stays readable when it is renamed or removed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Also when nobody closes it, as with a file of Python's: a part may be dropped where a task fails.
        self._close = weakref.finalize(self, os.close, descriptor)
        self.at = FilePosition(os.fstat(descriptor).st_ino)
        self._first = b""
        self._last = b""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self | None:
        """The file at a path; None if there is none."""
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            return None

    @property
    def unread(self) -> int:
        """How many bytes there are behind the place up to which it was read."""
        return max(0, os.fstat(self._descriptor).st_size - self.at.offset)

    def read_at(self, size: int, offset: int) -> bytes:
        """So many bytes, fewer only where the file ends."""
        pieces = []
        while size and (piece := os.pread(self._descriptor, size, offset)):
            pieces.append(piece)
            size -= len(piece)
            offset += len(piece)
        return b"".join(pieces)

    def go_to(self, at: FilePosition) -> bool:
        """Go on where another reader was; False, and no change, if this is not the file that it read."""
        first, last = self._around(at.offset)
        if at.inode != self.at.inode or (at.offset and _digest(first, last) != at.mark):
            return False
        self.at, self._first, self._last = at, first, last
        return True

    def advance(self, consumed: bytes, rows: int) -> None:
        """Note what was read behind the last place."""
        self._first = (self._first + consumed[:_KEPT])[:_KEPT]
        self._last = (self._last + consumed[-_KEPT:])[-_KEPT:]
        mark = _digest(self._first, self._last)
        self.at = replace(self.at, offset=self.at.offset + len(consumed), row=self.at.row + rows, mark=mark)

    def is_intact(self) -> bool:
        """Whether what was read of it still stands in it."""
        return self._around(self.at.offset) == (self._first, self._last)

    def start_again(self) -> None:
        """Read it from its begin, as if nothing had been read."""
        self.at, self._first, self._last = FilePosition(self.at.inode), b"", b""

    def close(self) -> None:
        self._close()

    def _around(self, offset: int) -> tuple[bytes, bytes]:
        """The first bytes, and those before an offset, as far as they are there."""
        size = min(offset, _KEPT)
        return self.read_at(size, 0), self.read_at(size, offset - size)


def inode_and_size(path: str) -> tuple[int, int] | None:
    """Of the file at a path; None if there is none."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size


def find_renamed(path: str, at: FilePosition, others: re.Pattern[str]) -> Followed | None:
    """The file that was read at ``path``, under the name that it has now in the same folder.

    Names that match ``others`` belong to parts of their own.
    """
    folder = Path(path).resolve().parent
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if others.fullmatch(entry.name) or not entry.is_file() or entry.stat().st_ino != at.inode:
                continue
            found = Followed.open(entry.path)
            if found is not None and found.go_to(at):
                return found
            if found is not None:
                found.close()
    return None


def _digest(first: bytes, last: bytes) -> str:
    return hashlib.blake2b(first + b"\0" + last, digest_size=16).hexdigest()

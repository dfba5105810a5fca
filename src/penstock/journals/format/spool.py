"""The spool: the file that takes in what is appended, until it is rolled over into a fragment.

``.{begin:016x}.spool`` in the journal's folder begins with a line of 64 bytes that announces up to where the
journal can be read; the journal's bytes follow. An appender, which holds the journal's lock, writes its
lines, syncs them to disk and only then announces them, so that nobody reads what a power failure could take
back. One that is killed leaves lines that were not announced, and maybe a torn one. The next appender keeps
the whole ones, since they may have been promised to somebody, and cuts off the rest.
"""

from __future__ import annotations

import errno
import os
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.core.durable import sync_folder
from penstock.core.failpoints import reach
from penstock.errors import BadInput, CorruptFile, StorageFull, UsageError
from penstock.journals.format.documents import parse, stamp_of
from penstock.journals.format.fragments import spool_begin, spool_name

HEADER = 64
_BLOCK = 1 << 20
_MARK = re.compile(rb"penstock-spool 1 ([0-9a-f]{16}) ([0-9a-f]{16}) ([0-9a-f]{8}) *\n")
_NEWER = re.compile(rb"penstock-(spool|producer) ([2-9]|[1-9][0-9]+) ")


@dataclass(frozen=True, slots=True)
class SpoolMark:
    """What the first line of a spool announces: its end, and the time of its first append in seconds."""

    end: int
    since: int

    def encode(self) -> bytes:
        text = b"penstock-spool 1 %016x %016x" % (self.end, self.since)
        return (b"%s %08x" % (text, zlib.crc32(text))).ljust(HEADER - 1) + b"\n"

    @classmethod
    def decode(cls, header: bytes) -> SpoolMark | None:
        """None if the line is torn, by a crash or because it is just being written."""
        refuse_newer(header)
        found = _MARK.fullmatch(header)
        if found is None or zlib.crc32(header[:50]) != int(found[3], 16):
            return None
        return cls(int(found[1], 16), int(found[2], 16))


class SpoolReader:
    """A spool as readers see it, also after it was rolled over and its name is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.begin = spool_begin(path.name) or 0
        self._end = self.begin

    def announced(self) -> int:
        """Up to where the journal can be read here."""
        for _ in range(5):
            mark = SpoolMark.decode(os.pread(self._descriptor, HEADER, 0))
            if mark is not None:
                self._end = max(self._end, mark.end)
                break
            time.sleep(0.001)
        return self._end

    def written(self) -> int:
        """Up to where there are bytes, announced or not."""
        return max(self.begin, self.begin + os.fstat(self._descriptor).st_size - HEADER)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes that are announced, from ``offset`` on. Raises `CorruptFile` if they are gone."""
        size = min(size, self.announced() - offset)
        if size <= 0:
            return b""
        data = os.pread(self._descriptor, size, HEADER + offset - self.begin)
        if not data:
            raise shortened(self._path, offset, self._end)
        return data

    def is_removed(self) -> bool:
        """Whether it was rolled over. What it announces after this was asked is its last word."""
        return os.fstat(self._descriptor).st_nlink == 0

    def modified(self) -> float:
        return os.fstat(self._descriptor).st_mtime

    def close(self) -> None:
        os.close(self._descriptor)


class Spool:
    """A spool as the appender sees it that holds the journal's lock."""

    def __init__(self, path: Path, descriptor: int, mark: SpoolMark) -> None:
        self.path = path
        self.begin = spool_begin(path.name) or 0
        self._descriptor = descriptor
        self._mark = mark

    @classmethod
    def create(cls, folder: Path, begin: int) -> Spool:
        """A new one, durably there."""
        path = folder / spool_name(begin)
        with full_disk(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            spool = cls(path, descriptor, SpoolMark(begin, 0))
            try:
                reach("journal.spool.created")
                spool._announce(spool._mark)
                os.fsync(descriptor)
                sync_folder(folder)
            except BaseException:
                spool.close()
                raise
        return spool

    @classmethod
    def open(cls, path: Path) -> Spool:
        """One that is there, mended if its last appender was killed."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        begin = spool_begin(path.name) or 0
        spool = cls(
            path, descriptor, SpoolMark.decode(os.pread(descriptor, HEADER, 0)) or SpoolMark(begin, 0)
        )
        try:
            spool.mend()
        except BaseException:
            spool.close()
            raise
        return spool

    @property
    def end(self) -> int:
        return self._mark.end

    @property
    def size(self) -> int:
        return self.end - self.begin

    @property
    def since(self) -> int:
        """When the first of its bytes was appended."""
        return self._mark.since

    def is_current(self) -> bool:
        """Whether the file is still the one at its path."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def mend(self) -> None:
        """Take in what other appenders announced, and put right what one that was killed left behind."""
        mark = SpoolMark.decode(os.pread(self._descriptor, HEADER, 0)) or SpoolMark(
            self.begin, self._mark.since
        )
        written = self.begin + os.fstat(self._descriptor).st_size - HEADER
        if written < mark.end:
            if mark.end == self.begin:
                self._announce(mark)  # it was created, and no more
                written = self.begin
            else:
                raise shortened(self.path, max(written, self.begin), mark.end)
        self._mark = mark
        if written > mark.end:
            end = self._whole_lines(mark.end, written)
            os.ftruncate(self._descriptor, HEADER + end - self.begin)
            os.fsync(self._descriptor)
            self._announce(SpoolMark(end, mark.since or int(time.time())))

    def append(self, data: bytes, *, sync: bool, now: int) -> int:
        """Append whole lines and say at which offset. After an error none of them is there."""
        begin = self.end
        with full_disk(self.path):
            try:
                self._write(data, begin)
                reach("journal.append.written")
                if sync:
                    os.fsync(self._descriptor)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, HEADER + begin - self.begin)
                raise
        reach("journal.append.synced")
        self._announce(SpoolMark(begin + len(data), self.since if self.size else now))
        reach("journal.append.announced")
        return begin

    def blocks(self) -> Iterator[bytes]:
        """All its bytes."""
        for offset in range(self.begin, self.end, _BLOCK):
            yield self._read(offset, min(_BLOCK, self.end - offset))

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def remove(self) -> None:
        """Take its name away, durably. Readers that have it open may read on."""
        self.path.unlink()
        sync_folder(self.path.parent)
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, data: bytes, offset: int) -> None:
        rest, position = memoryview(data), HEADER + offset - self.begin
        while rest:
            count = os.pwrite(self._descriptor, rest[:_BLOCK], position)
            rest, position = rest[count:], position + count
            if rest:
                reach("journal.append.writing")

    def _read(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, HEADER + offset - self.begin)

    def _announce(self, mark: SpoolMark) -> None:
        os.pwrite(self._descriptor, mark.encode(), 0)
        self._mark = mark

    def _whole_lines(self, offset: int, end: int) -> int:
        """Up to where the bytes from ``offset`` on are lines of documents.

        What was never synced may be anything after a power failure, zeros among others.
        """
        rest = b""
        while offset + len(rest) < end:
            block = self._read(offset + len(rest), _BLOCK)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                try:
                    stamp_of(parse(line))
                except BadInput:
                    return offset
                offset += len(line) + 1
            if not block:
                break
        return offset


def shortened(path: Path, written: int, announced: int) -> CorruptFile:
    return CorruptFile(
        f"{path} ends at offset {written:,}, but {announced:,} was announced",
        left="the bytes in between are gone, as after a power failure if they were not synced",
        hint="bring the file back from a copy; or move it away, and the journal goes on after its last "
        "fragment, as if the lines in it had never been there",
    )


def refuse_newer(line: bytes) -> None:
    """Raise for a line that another version wrote: it must not be taken for a torn one, and mended."""
    if found := _NEWER.match(line):
        raise UsageError(
            f"a {found[1].decode()} of the journals has format {found[2].decode()}, and this version of "
            "Penstock knows format 1",
            left="it was not changed",
            hint="upgrade Penstock: a newer version writes to these journals",
        )


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Raise `StorageFull` when there is no space left."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"no space left at {path.parent}",
                left="what was appended before; of this, nothing",
                hint="free some space, then append it again",
            ) from error
        raise

"""Appending to one journal in a folder, by several processes at once.

Everything here happens under the lock of the journal. Its spool is rolled over in steps of which each can be
the last one before a crash: the fragment is written beside its place, synced, renamed, the folder is synced,
and only then the spool goes. Until then spool and fragment hold the same bytes, of which readers take one.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.core.durable import sync_folder
from penstock.core.failpoints import reach
from penstock.errors import CorruptFile, StoreUnavailable, UsageError
from penstock.journals.format.fragments import (
    EXTENSIONS,
    LARGEST_OFFSET,
    Fragment,
    head,
    name_of,
    spool_begin,
)
from penstock.journals.format.spool import Spool, full_disk
from penstock.journals.reader import listing
from penstock.storage import Storage
from penstock.store.filelock import FileLock

Compression = Literal["raw", "gz", "zst"]

_LOCK = ".lock"
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Policy:
    """When a spool is rolled over, and into what; whether an append waits for the disk."""

    roll_bytes: int
    roll_age: float
    compression: Compression
    sync: bool
    now: Callable[[], float] = time.time


class Appender:
    """One journal as a writer sees it. Threads may share it."""

    def __init__(self, storage: Storage, journal: str, policy: Policy) -> None:
        assert storage.local is not None
        self._storage = storage
        self._root = storage.local
        self._journal = journal
        self._folder = storage.local / journal
        self._policy = policy
        self._lock: FileLock | None = None
        self._inode = 0
        self._spool: Spool | None = None

    def append(self, data: bytes) -> int:
        """Append whole lines, all or none, and say at which offset. When it returns, they are durable."""
        policy = self._policy
        with self._locked():
            spool = self._current()
            aged = policy.now() - spool.since >= policy.roll_age
            if spool.size and (aged or spool.size + len(data) > policy.roll_bytes):
                spool = self._rolled(spool)
            return spool.append(data, sync=policy.sync, now=int(policy.now()))

    def begin(self, offset: int) -> None:
        """Make the journal, with ``offset`` as its begin. One that is there must end at this offset."""
        if not 0 <= offset < LARGEST_OFFSET:
            raise UsageError(
                f"journal {self._journal} cannot begin at offset {offset}",
                left="nothing was written",
                hint=f"offsets are from 0 to {LARGEST_OFFSET - 1}",
            )
        with self._locked():
            if not listing.fragments(self._storage, self._journal):
                self._spool = Spool.create(self._folder, offset)
            elif (end := self._current().end) != offset:
                raise UsageError(
                    f"journal {self._journal} is there and ends at offset {end}, not {offset}",
                    left="nothing was written",
                    hint="append to it as it is; or, if it is to begin anew, move its folder away first",
                )

    def roll(self) -> bool:
        """Make a fragment of what is in the spool, if there is something. Mends the journal on the way."""
        with self._locked():
            spool = self._current()
            if spool.size:
                self._rolled(spool)
                return True
            return False

    def close(self) -> None:
        """Let go of files. The next append opens them again."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the journal, whose folder may be removed and made anew by others."""
        for _ in range(100):
            lock = self._lock or self._opened()
            if lock is None:
                continue
            with lock.held():
                if self._is_ours():
                    yield
                    return
            self.close()
        raise StoreUnavailable(f"{self._folder} is removed again and again", hint="see who removes it")

    def _opened(self) -> FileLock | None:
        """The lock, in a folder that is durably there; None if somebody removed it meanwhile."""
        path = self._folder / _LOCK
        with full_disk(path):
            try:
                if not path.exists():
                    self._make_folders()
                self._lock = FileLock(path, _PATIENCE)
                self._inode = path.stat().st_ino
            except FileNotFoundError:
                self.close()
        return self._lock

    def _is_ours(self) -> bool:
        try:
            return (self._folder / _LOCK).stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _make_folders(self) -> None:
        """Make all folders down to the journal's. Those that others just made are synced too."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for folder in (self._folder, *self._folder.parents):
            sync_folder(folder.parent)
            if folder == self._root:
                break

    def _current(self) -> Spool:
        """The spool to append to, mended."""
        spool = self._spool
        if spool is not None and spool.is_current():
            spool.mend()
            return spool
        if spool is not None:
            spool.close()
        self._spool = None
        self._spool = self._found()
        return self._spool

    def _found(self) -> Spool:
        """The spool in the folder, or a new one. What a killed roll-over left is removed."""
        fragments = [f for f in listing.fragments(self._storage, self._journal) if not f.is_spool]
        end = head(fragments) or 0
        found: Spool | None = None
        for path in self._hidden():
            if path.name.endswith(".tmp"):
                path.unlink()
            elif spool_begin(path.name) is not None:
                spool = Spool.open(path)
                if _is_rolled(spool, fragments):
                    spool.remove()
                elif spool.end < end or found is not None:
                    spool.close()
                    raise self._confused(path, end)
                else:
                    found = spool
        return found or Spool.create(self._folder, end)

    def _hidden(self) -> list[Path]:
        with os.scandir(self._folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.name[0] == ".")

    def _rolled(self, spool: Spool) -> Spool:
        """Make a fragment of the spool, and begin the next one."""
        extension = EXTENSIONS[self._policy.compression]
        temporary = self._folder / f".{spool.begin:016x}-{spool.end:016x}.tmp"
        with full_disk(temporary):
            try:
                if not self._policy.sync:
                    spool.sync()
                sha1 = _write(spool, temporary, self._policy.compression)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            reach("journal.roll.written")
            temporary.rename(self._folder / name_of(spool.begin, spool.end, sha1, extension))
            sync_folder(self._folder)
        reach("journal.roll.renamed")
        end = spool.end
        self._spool = None
        spool.remove()
        reach("journal.roll.removed")
        self._spool = Spool.create(self._folder, end)
        return self._spool

    def _confused(self, path: Path, end: int) -> CorruptFile:
        return CorruptFile(
            f"{path} does not fit the fragments beside it, which end at {end:,}",
            left="nothing was appended",
            hint="`penstock journal verify` shows what overlaps; move away what does not belong there",
        )


def _is_rolled(spool: Spool, fragments: list[Fragment]) -> bool:
    """Whether a fragment holds all that is in the spool, and more may have come after it."""
    end = head(fragments) or 0
    if not spool.size:
        return spool.begin < end
    return any(f.begin <= spool.begin and spool.end <= f.end for f in fragments)


def _write(spool: Spool, path: Path, compression: Compression) -> str:
    """Write the bytes of a spool to a file, durably, and return their SHA-1."""
    digest = hashlib.sha1(usedforsecurity=False)
    with _compressed(path, compression) as put:
        for block in spool.blocks():
            digest.update(block)
            put(block)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return digest.hexdigest()


@contextmanager
def _compressed(path: Path, compression: Compression) -> Iterator[Callable[[bytes], object]]:
    with path.open("wb") as file:
        if compression == "raw":
            yield file.write
        elif compression == "gz":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                yield packed.write
        else:
            import pyarrow as pa

            with pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd") as stream:
                yield stream.write

"""Which producer a writer is, so that no two write as the same one, and none with clocks that were passed.

``.producers/{producer}`` below the root has a line of 64 bytes: a clock that the producer has not gone
beyond, a token of the writer whose it is, and what becomes of it. A writer holds the file's lock while it
appends, looks whether the token is still its own, and writes down a clock ahead of its own before it uses one
that is later. So whoever takes the producer over passes every clock that was used, or promised in an ack that
is not written yet, and the one before is fenced: it gets an error, and nothing of it comes between.

A writer that was given no producer takes one that an earlier such writer let go of, with nothing left open.
There are as many of these as writers were at work at once, so that readers have few to remember.
"""

from __future__ import annotations

import logging
import os
import random
import re
import secrets
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from penstock.core.durable import sync_folder
from penstock.core.failpoints import reach
from penstock.errors import FencedError, StoreUnavailable
from penstock.journals.format.spool import full_disk, refuse_newer
from penstock.journals.format.uuids import SECOND, Stamp, Ticker, new_producer, parse_producer, producer_text
from penstock.journals.writer.takeover import greatest_clock
from penstock.storage import Storage
from penstock.store.filelock import FileLock

FOLDER = ".producers"

_log = logging.getLogger(__name__)

_SIZE = 64
_LINE = re.compile(rb"penstock-producer 1 ([0-9a-f]{16}) ([0-9a-f]{8}) (kept|busy|free) ([0-9a-f]{8}) *\n")
_NAME = re.compile(r"[0-9a-f]{12}")
_PATIENCE = 60.0
_AHEAD = SECOND // 5
"""How far ahead clocks are reserved: after a crash, the next clocks are later by so much at the most."""
_ABANDONED = 7 * 86_400.0
"""After so many seconds, the record of a writer that was given no producer and is gone is deleted."""
_TRIES = 1000
"""So many records a writer looks at before it makes another producer. Where killed writers have left more
than these, some are made, until there are enough free ones for one to be among those it looks at."""


class ProducerState(Enum):
    """What becomes of a producer: somebody named it, it has a writer of its own, or nobody needs it."""

    KEPT = "kept"
    BUSY = "busy"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """``clock`` was not passed by the producer, whose writer has the ``token``."""

    clock: int
    token: int
    state: ProducerState

    def encode(self) -> bytes:
        text = b"penstock-producer 1 %016x %08x %s" % (self.clock, self.token, self.state.value.encode())
        return (b"%s %08x" % (text, zlib.crc32(text))).ljust(_SIZE - 1) + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> ProducerRecord | None:
        """None if there is none yet, or a crash has torn it."""
        refuse_newer(line)
        found = _LINE.fullmatch(line)
        if found is None or zlib.crc32(line[: found.start(4) - 1]) != int(found[4], 16):
            return None
        return cls(int(found[1], 16), int(found[2], 16), ProducerState(found[3].decode()))


class Identity:
    """The producer of one writer. Not for several threads at once."""

    def __init__(self, storage: Storage, producer: int | None, ticker: Ticker) -> None:
        assert storage.local is not None
        self._storage = storage
        self._folder = storage.local / FOLDER
        self._ticker = ticker
        self._is_named = producer is not None
        self._number = producer
        self._file: _RecordFile | None = None
        self._token: int | None = None
        self._clock = 0
        """What was used up to now, by this writer or before."""
        self._is_released = False

    @property
    def number(self) -> int:
        if self._number is None:
            self.take()
        assert self._number is not None
        return self._number

    def is_own(self, stamp: Stamp) -> bool:
        return stamp.producer == self._number

    def take(self) -> bool:
        """See that there is a producer. Whether it is another one than before, or was taken over anew."""
        if self._token is not None and self._file is not None:
            if not self._is_released and self._file.is_there():
                return False
            if self._is_released and self._takes_back():
                return False
        with full_disk(self._folder):
            self._file = self._named() if self._is_named else self._unnamed()
        self._is_released = False
        return True

    @contextmanager
    def writing(self, clock: int) -> Iterator[None]:
        """Hold the producer while something with clocks up to this one is written, or promised.

        Raises `FencedError` if another writer has taken it over.
        """
        number = self._number
        if self._file is None or self._token is None or self._is_released:
            self.take()
        assert self._file is not None
        if number is not None and number != self._number:
            raise self._fenced(number)  # what is to be written has the stamps of the one before
        with self._file.locked(_PATIENCE):
            record = self._file.read()
            if record is None:
                self._token = None  # somebody deleted it: the next call takes the producer anew
            if record is None or record.token != self._token:
                raise self._fenced(self._number)
            if clock > record.clock:
                with full_disk(self._folder):
                    self._file.write(replace(record, clock=clock + _AHEAD))
                reach("journal.producer.reserved")
            self._clock = max(self._clock, clock)
            yield

    def pass_on(self, stamps: Iterable[Stamp]) -> None:
        """Take note of clocks of other producers that are going to be written.

        One whose record they go beyond is taken from its writer, which does not know of them.
        """
        clocks: dict[int, int] = {}
        for stamp in stamps:
            if not self.is_own(stamp):
                clocks[stamp.producer] = max(clocks.get(stamp.producer, 0), stamp.clock)
        for producer, clock in clocks.items():
            if (self._folder / producer_text(producer)).exists():
                self._advance(_RecordFile(self._folder, producer), clock)

    def release(self, *, is_settled: bool) -> None:
        """Let others have it: anybody, if nothing is left open and nobody named it."""
        file = self._file
        if file is None or self._is_released:
            return
        with suppress(OSError, StoreUnavailable), file.locked(_PATIENCE):
            record = file.read()
            if record is not None and record.token == self._token:
                state = (
                    ProducerState.FREE if is_settled and record.state is ProducerState.BUSY else record.state
                )
                file.write(ProducerRecord(self._clock, record.token, state))
        file.close()
        self._is_released = True

    def _takes_back(self) -> bool:
        """Go on after a release, if nobody else had it meanwhile."""
        assert self._file is not None
        with self._file.locked(_PATIENCE):
            record = self._file.read()
            if record is None or record.token != self._token:
                if record is not None and self._is_named:
                    raise self._fenced(self._number)
                return False
            self._file.write(
                replace(record, state=ProducerState.KEPT if self._is_named else ProducerState.BUSY)
            )
            self._is_released = False
            return True

    def _named(self) -> _RecordFile:
        """Take over the producer that was asked for, whoever has it."""
        assert self._number is not None
        file = _RecordFile(self._folder, self._number)
        with file.locked(_PATIENCE):
            record = file.read()
            clock = greatest_clock(self._storage, self._number) if record is None else record.clock
            self._own(file, clock, ProducerState.KEPT)
        return file

    def _unnamed(self) -> _RecordFile:
        """One that nobody needs any more, or a new one."""
        for file in self._known():
            with suppress(StoreUnavailable), file.locked(0.0):
                record = file.read()
                if record is not None and record.state is ProducerState.FREE:
                    self._number = file.producer
                    self._own(file, record.clock, ProducerState.BUSY)
                    return file
                if record is None or record.state is ProducerState.BUSY:
                    file.remove_if_abandoned()
            file.close()
        self._number = new_producer()
        file = _RecordFile(self._folder, self._number)
        with file.locked(_PATIENCE):
            self._own(file, 0, ProducerState.BUSY)
        return file

    def _known(self) -> Iterator[_RecordFile]:
        """The records to look at, at most `_TRIES` of them: any, so that each is found sooner or later."""
        with suppress(FileNotFoundError):
            names = sorted(filter(_NAME.fullmatch, (path.name for path in self._folder.iterdir())))
            for name in sorted(random.sample(names, min(len(names), _TRIES))):
                yield _RecordFile(self._folder, parse_producer(name))

    def _own(self, file: _RecordFile, clock: int, state: ProducerState) -> None:
        self._token = secrets.randbits(32)
        self._clock = clock
        self._ticker.pass_by(clock)
        file.write(ProducerRecord(clock, self._token, state))
        sync_folder(self._folder)
        sync_folder(self._folder.parent)
        reach("journal.producer.taken")
        ahead = (self._ticker.tick() - self._ticker.wall()) / SECOND
        if ahead > _PATIENCE:
            _log.warning(
                "producer %s has used clocks that are %d s ahead of this machine; readers wait so long",
                producer_text(file.producer),
                ahead,
            )

    def _advance(self, file: _RecordFile, clock: int) -> None:
        with file.locked(_PATIENCE):
            record = file.read()
            if record is not None and clock > record.clock:
                file.write(ProducerRecord(clock, secrets.randbits(32), record.state))
        file.close()

    def _fenced(self, number: int | None) -> FencedError:
        return FencedError(
            f"another writer has taken over producer {producer_text(number or 0)}",
            left="of this, nothing was written; what was before is there",
            hint="end one of the two; JournalWriter(…, producer=…) takes a producer over, and without one a "
            "writer is a producer of its own",
        )


class _RecordFile:
    """The file of a producer, with its lock. Others may remove it."""

    def __init__(self, folder: Path, producer: int) -> None:
        self.producer = producer
        self._folder = folder
        self._path = folder / producer_text(producer)
        self._lock: FileLock | None = None

    @contextmanager
    def locked(self, patience: float) -> Iterator[None]:
        for _ in range(100):
            lock = self._lock or self._opened()
            with lock.held(patience):
                if lock.is_at_its_path():
                    yield
                    return
            self.close()
        raise StoreUnavailable(f"{self._path} is removed again and again", hint="see who removes it")

    def is_there(self) -> bool:
        return self._lock is not None and self._lock.is_at_its_path()

    def read(self) -> ProducerRecord | None:
        assert self._lock is not None
        return ProducerRecord.decode(os.pread(self._lock.descriptor, _SIZE, 0))

    def write(self, record: ProducerRecord) -> None:
        """Durably, as a whole: the line is shorter than what disks write at once."""
        assert self._lock is not None
        os.pwrite(self._lock.descriptor, record.encode(), 0)
        os.fsync(self._lock.descriptor)

    def remove_if_abandoned(self) -> None:
        """Remove it if nothing was written to it for long."""
        with suppress(FileNotFoundError):
            if time.time() - self._path.stat().st_mtime > _ABANDONED:
                self._path.unlink()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _opened(self) -> FileLock:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self._path, _PATIENCE)
        return self._lock

"""How slow readers slow their queries: what large results take on disk is bounded, and writers wait for room.

::

    <folder>/<query>/halt    is there while its writers must wait; it names the partition that is read now

One thread looks at all results that pass through files. A query, all queries of a user, and the disk itself
have a limit each. Writers that wait hold cores: a query whose reader stands still is ended when others want
them.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import SqlError

if TYPE_CHECKING:
    from penstock.server.engine.results.spool import ResultSpool

HALT = "halt"
_LOOK_EVERY = 0.05
_STALLED = 60.0
_DESPERATE = 5.0


@dataclass(frozen=True, slots=True)
class Quotas:
    """Bytes of results on disk: of one query, of one user; and how many must stay free."""

    query: int = 1 << 30
    user: int = 4 << 30
    free: int = 1 << 30


@dataclass(slots=True)
class _Watched:
    spool: ResultSpool
    user: str
    fail: Callable[[SqlError], None]
    halted: int | None = None
    since: float = 0.0
    """When its writers were halted, or something was read after that."""
    idle: float = 0.0
    """Since when there is something to read, and nobody reads it."""
    read: int = -1
    """Batches that had been read when it was looked at last."""


class ResultWatch:
    """Watches results while they are written and read. ``wanted``: whether others than this user wait."""

    def __init__(
        self,
        quotas: Quotas,
        wanted: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
        free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
        *,
        alone: bool = True,
    ) -> None:
        """If not ``alone``, somebody else calls `look`."""
        self._alone = alone
        self.quotas = quotas
        self._wanted = wanted
        self._clock = clock
        self._free = free
        self._lock = threading.Condition()
        self._watched: dict[str, _Watched] = {}
        self._thread: threading.Thread | None = None

    def add(self, spool: ResultSpool, user: str, fail: Callable[[SqlError], None]) -> None:
        """Watch a result. ``fail`` ends its query."""
        if spool.folder is None:
            return
        with self._lock:
            self._watched[spool.query] = _Watched(spool, user, fail)
            if self._thread is None and self._alone:
                self._thread = threading.Thread(target=self._watch, name="penstock-spool", daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def remove(self, spool: ResultSpool) -> None:
        with self._lock:
            self._watched.pop(spool.query, None)

    def is_halted(self, query: str) -> bool:
        with self._lock:
            watched = self._watched.get(query)
            return watched is not None and watched.halted is not None

    def look(self) -> None:
        """Halt and release writers, once."""
        with self._lock:
            watched = list(self._watched.values())
        sizes = {each.spool.query: each.spool.size() for each in watched}
        users: Counter[str] = Counter()
        for each in watched:
            users[each.user] += sizes[each.spool.query]
        for each in watched:
            folder = each.spool.folder
            assert folder is not None
            try:
                free = self._free(folder)
            except OSError:
                continue
            size = sizes[each.spool.query]
            full = size >= self.quotas.query or users[each.user] >= self.quotas.user
            scarce = free < self.quotas.free
            self._steer(each, halted=full or scarce)
            self._judge(each, size, scarce=scarce)

    def _steer(self, each: _Watched, *, halted: bool) -> None:
        folder, part = each.spool.folder, each.spool.part
        assert folder is not None
        with suppress(OSError):
            if halted and each.halted != part:
                draft = folder / f".{HALT}"
                draft.write_text(str(part), encoding="ascii")
                draft.rename(folder / HALT)
                each.halted = part
            elif not halted and each.halted is not None:
                (folder / HALT).unlink(missing_ok=True)
                each.halted = None
        if each.spool.batches_read != each.read or not halted:
            each.read, each.since = each.spool.batches_read, self._clock()
            each.idle = each.since
        elif not each.spool.is_unread():
            # What its reader waits for is still being computed.
            each.idle = self._clock()

    def _judge(self, each: _Watched, size: int, *, scarce: bool) -> None:
        """End what would wait for ever, or at the cost of others."""
        if each.halted is None:
            return
        waited = self._clock() - each.since
        if scarce and size == 0 and waited > _DESPERATE:
            what = f"less than {self.quotas.free >> 20:,} MB are free on the disk through which results pass"
            each.fail(SqlError(what, sqlstate="53100", hint="make room there, or ask for less"))
        elif self._clock() - each.idle > _STALLED and self._wanted(each.user):
            what = (
                f"the result was not read for {_STALLED:.0f} s, and others wait for the cores that it holds"
            )
            each.fail(SqlError(what, sqlstate="57014", hint="read faster, or ask for less at a time (LIMIT)"))

    def _watch(self) -> None:
        while True:
            with self._lock:
                while not self._watched:
                    self._lock.wait()
            with suppress(Exception):
                self.look()
            time.sleep(_LOOK_EVERY)


class Brake:
    """What a writer asks before it writes on."""

    def __init__(self, folder: Path, part: int) -> None:
        self._folder = folder
        self._halt = str(folder / HALT)
        self._part = part

    @property
    def halted(self) -> bool:
        return os.path.exists(self._halt)  # noqa: PTH110 - asked for every batch

    @property
    def needed(self) -> bool:
        """Whether the partition of this writer is the one that is read."""
        try:
            with open(self._halt, encoding="ascii") as file:  # noqa: PTH123
                return int(file.read()) == self._part
        except (OSError, ValueError):
            return False

    def wait_until_needed(self) -> None:
        """Return when there is room, or when this writer's partition becomes the one that is read."""
        while self.halted and not self.needed:
            self._pause()

    def wait_until_read(self, pieces: Sequence[str]) -> bool:
        """Return when there is room, or when all that was written of this partition has been read.

        In the second case, which it tells, the writer must go on: what fills the disk may be later
        partitions, which nobody can read before this one.
        """
        while self.halted:
            if not any((self._folder / piece).exists() for piece in pieces):
                return True
            self._pause()
        return False

    def _pause(self) -> None:
        time.sleep(_LOOK_EVERY)
        if not self._folder.exists():
            raise SqlError("the result is not wanted any more", sqlstate="57014")

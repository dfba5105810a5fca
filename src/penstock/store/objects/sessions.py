"""Sessions in a bucket: a folder of versions whose number is the session's heartbeat.

Nobody's clock is compared with anybody else's, nor with the times of objects. An observer that saw the same
number for a whole ttl, by its own clock, creates the next number as a tombstone; the owner creates the next
number to stay alive. Only one of them can, so that everybody who looks afterwards agrees. An owner that is
late by its own clock gives up by itself, even if nobody noticed, and so it is never alive in its own eyes
only.

Old numbers are removed, and a session that is over leaves nothing. That needs care where somebody is slow:

- A slow observer could bury a session under a number that was used before. It looks again after it created
  a tombstone: where its number had been used, higher ones are there.
- A slow heartbeat could arrive after the session was buried and removed. It stands alone then: a heartbeat
  counts only if the one before it is there, and of what is removed the tombstone goes last. The owner looks
  for the one before it, too.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from penstock.core import clocks
from penstock.errors import CorruptFile, PenstockError, StoreUnavailable
from penstock.store.backends import session_lost
from penstock.store.base import Session
from penstock.store.objects.chains import unsettled
from penstock.store.objects.names import SESSIONS, version_name
from penstock.store.objects.versions import VersionRecord, Versions, new_id

_KEEP = 2
# The owner removes old numbers in batches of this many: a keepalive should be few requests.
_BATCH = 8
# How often an owner looks for sessions that nobody asks about, in heartbeats, and which of them it looks at:
# those whose number stood still for so long by its own clock.
_SWEEP_EVERY = 16
_STANDING = 60.0
_SWEEP = 50
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Sight:
    """A session as an observer saw it for the first time at this number, by its own clock."""

    number: int
    at: float
    ttl: float | None
    """None for a tombstone."""


class Sessions:
    """What one handle does about sessions, its own and others'."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._lock = threading.Lock()
        self._sights: dict[str, Sight] = {}
        self._standing: dict[str, Sight] = {}

    def open(self, ttl: float) -> ObjectSession:
        session = ObjectSession(self._versions, ttl, self._sweep)
        session.begin()
        with suppress(PenstockError):
            self._sweep()
        return session

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        """Those that are alive, as far as this observer can tell: at first sight, all that are not over."""
        if not sessions:
            return frozenset()
        asked = clocks.now()
        newest = self._newest()

        def is_alive(session: str) -> bool:
            return self._is_alive(session, newest[session], asked)

        names = [name for name in dict.fromkeys(sessions) if name in newest]
        verdicts = self._versions.bucket.each(is_alive, names)
        with self._lock:
            self._sights = {name: sight for name, sight in self._sights.items() if name in newest}
        return frozenset(name for name, verdict in zip(names, verdicts, strict=True) if verdict)

    def after_fork(self) -> None:
        """In a forked child: a lock that no thread of the parent holds."""
        self._lock = threading.Lock()

    def _newest(self) -> Mapping[str, int]:
        """The last heartbeat of every session of which anything is there."""
        folders = self._versions.below(SESSIONS)
        return {folder.rpartition("/")[2]: found[-1].number for folder, found in folders.items()}

    def _is_alive(self, session: str, number: int, asked: float) -> bool:
        """``number`` is the newest of a listing that was asked for at that time."""
        sight = self._sights.get(session)
        if sight is None or (sight.number != number and sight.ttl is not None):
            return self._look(session, number)
        if sight.ttl is None:
            return False
        if asked - sight.at < sight.ttl:
            return True
        return not self._bury(session, sight.number)

    def _look(self, session: str, number: int) -> bool:
        """Whether a session is alive whose last heartbeat was ``number`` just now, or is greater."""
        folder = _folder(session)
        for _ in range(_TRIES):
            record = self._versions.read(folder, number)
            follows = record is not None and _follows(self._versions, folder, number, record)
            newest = self._versions.newest(folder, number)
            if newest == number and record is not None:
                ttl = _ttl(session, record.value) if follows and record.value is not None else None
                self._remember(session, Sight(number, clocks.now(), ttl))
                return ttl is not None
            if newest == 0:
                return False
            number = newest
        raise unsettled(folder)

    def _remember(self, session: str, sight: Sight) -> None:
        with self._lock:
            known = self._sights.get(session)
            over = known is not None and known.ttl is None
            if known is None or sight.ttl is None or (known.number < sight.number and not over):
                self._sights[session] = sight

    def _bury(self, session: str, number: int) -> bool:
        """Whether the session is over because its last number is ``number``."""
        folder, tombstone = _folder(session), VersionRecord(new_id(), None, None)
        if self._versions.create(folder, number + 1, tombstone).made is None:
            return not self._look(session, number + 1)
        if self._versions.list(folder, number + 2):
            self._versions.delete(folder, [number + 1])
            return False
        self._remember(session, Sight(number + 1, clocks.now(), None))
        with suppress(PenstockError):
            self._versions.remove_ended(folder, number + 1)
        return True

    def _sweep(self) -> None:
        """End sessions that nobody asks about, and remove what is left of those that are over."""
        newest, now = self._newest(), clocks.now()
        before, self._standing = self._standing, {}
        still = []
        for name, number in newest.items():
            known = before.get(name)
            if known is None or known.number != number:
                known = Sight(number, now, None)
            self._standing[name] = known
            if now - known.at >= _STANDING:
                still.append(name)
        for name in still[:_SWEEP]:
            if not self._is_alive(name, newest[name], now):
                self._versions.remove_ended(_folder(name), newest[name])


class ObjectSession(Session):
    """The owner's side: every keepalive is one more number."""

    def __init__(self, versions: Versions, ttl: float, sweep: Callable[[], None]) -> None:
        self.id = ""
        self.ttl = ttl
        self._versions = versions
        self._sweep = sweep
        self._over = False
        self._number = 0
        self._last: str | None = None
        self._oldest = 1
        self._renewed = 0.0

    def begin(self) -> None:
        """Create the first number, each time under another name: a late try is nobody's session."""
        for last in (False, False, True):
            self.id, self._renewed = new_id(), clocks.now()
            record = VersionRecord(new_id(), None, _owner(self.ttl))
            try:
                self._versions.bucket.create(f"{self._folder}/{version_name(1)}", record.to_json())
            except StoreUnavailable:
                if last:
                    raise
                continue
            except FileExistsError:
                pass  # the library tried twice
            self._number, self._last = 1, record.id
            return

    def keepalive(self) -> None:
        began = clocks.now()
        self._check(began)
        if not self._next(_owner(self.ttl)):
            self._over = True
            raise session_lost(self.ttl)
        # An answer that took too long came to a session that others may have seen end.
        self._check(clocks.now())
        self._renewed = began
        with suppress(PenstockError):
            if self._number - self._oldest >= _KEEP + _BATCH:
                self._versions.delete(self._folder, range(self._oldest, self._number - _KEEP + 1))
                self._oldest = self._number - _KEEP + 1
            if self._number % _SWEEP_EVERY == 0:
                self._sweep()

    def close(self) -> None:
        if not self._over:
            ended = self._next(None)
            self._over = True
            if ended:
                with suppress(PenstockError):
                    self._versions.remove_ended(self._folder, self._number)

    @property
    def _folder(self) -> str:
        return _folder(self.id)

    def _check(self, now: float) -> None:
        """Raise `SessionLost`, and tell everybody, when the ttl is over by our own clock."""
        if not self._over and now - self._renewed <= self.ttl:
            return
        with suppress(PenstockError):
            self.close()
        self._over = True
        raise session_lost(self.ttl)

    def _next(self, value: bytes | None) -> bool:
        """Create the next number; False when the session was ended. Numbers in between are our own, too."""
        while True:
            number = self._number + 1
            made = self._versions.create(
                self._folder, number, VersionRecord(new_id(), self._last, value)
            ).made
            found = made or self._versions.read(self._folder, number)
            if found is None or (found.value is None and not made):
                return False
            if not _follows(self._versions, self._folder, number, found):
                with suppress(PenstockError):
                    self._versions.delete(self._folder, [number])
                return False
            self._number, self._last = number, found.id
            if made:
                return True


def _folder(session: str) -> str:
    return f"{SESSIONS}/{session}"


def _follows(versions: Versions, folder: str, number: int, record: VersionRecord) -> bool:
    """Whether a heartbeat is not one that came after the end: the one before it is there."""
    if number == 1:
        return True
    before = versions.read(folder, number - 1)
    # Heartbeats of earlier releases do not say which one they follow.
    return before is not None and record.after in (None, before.id)


def _owner(ttl: float) -> bytes:
    return json.dumps({"ttl": ttl, "owner": f"process {os.getpid()} on {socket.gethostname()}"}).encode()


def _ttl(session: str, value: bytes) -> float:
    try:
        return float(json.loads(value)["ttl"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{_folder(session)} is not a session that Penstock wrote") from error

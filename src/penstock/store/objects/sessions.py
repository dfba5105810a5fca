"""Sessions in a bucket: a folder of versions whose number is the session's heartbeat.

Nobody's clock is compared with anybody else's. An observer that saw the same number for a whole ttl, by its
own clock, creates the next number as a tombstone; the owner creates the next number to stay alive. Only one
of them can, so that everybody who looks afterwards agrees. An owner that is late by its own clock gives up by
itself, even if nobody noticed, and so it is never alive in its own eyes only.

Old numbers are removed, and a slow observer could then bury a session under a number that was used before. It
looks again after it created a tombstone: where its number had been used, higher ones are there.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import CorruptFile, PenstockError
from penstock.store import clock
from penstock.store.base import Session
from penstock.store.objects.names import SESSIONS
from penstock.store.objects.versions import Record, Version, Versions
from penstock.store.sessions import session_lost

_KEEP = 2
# The owner removes old numbers in batches of this many: a keepalive should be one request.
_BATCH = 8
# How long the end of a session can be read, in seconds of the bucket's clock.
_TOMBSTONE = 3600.0
_SWEEP = 50


@dataclass(frozen=True, slots=True)
class Sight:
    """A session as an observer saw it for the first time at this number."""

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

    def open(self, ttl: float) -> ObjectSession:
        session = ObjectSession(self._versions, secrets.token_hex(8), ttl)
        session.begin()
        with suppress(PenstockError):
            self._sweep()
        return session

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        """Those that are alive, as far as this observer can tell: at first sight, all that are not over."""
        if not sessions:
            return frozenset()
        asked = clock.now()
        folders = self._versions.below(SESSIONS)
        found = {each: folders[_folder(each)][-1].number for each in sessions if _folder(each) in folders}
        seen = clock.now()

        def is_alive(session: str) -> bool:
            return self._is_alive(session, found[session], asked, seen)

        names = list(found)
        verdicts = self._versions.bucket.each(is_alive, names)
        return frozenset(name for name, verdict in zip(names, verdicts, strict=True) if verdict)

    def after_fork(self) -> None:
        """In a forked child: a lock that no thread of the parent holds."""
        self._lock = threading.Lock()

    def _is_alive(self, session: str, number: int, asked: float, seen: float) -> bool:
        """``number`` is the newest of a listing that was asked for and answered at these times."""
        sight = self._sights.get(session)
        if sight is None or sight.number < number:
            return self._look(session, number, seen)
        if sight.ttl is None:
            return False
        if asked - sight.at < sight.ttl:
            return True
        return not self._bury(session, sight.number)

    def _look(self, session: str, number: int, seen: float) -> bool:
        record = self._versions.read(_folder(session), number)
        if record is None:  # removed since: its owner has gone on
            return True
        ttl = None if record.value is None else _ttl(session, record.value)
        with self._lock:
            sight = self._sights.get(session)
            if sight is None or sight.number < number:
                self._sights[session] = Sight(number, seen, ttl)
        return ttl is not None

    def _bury(self, session: str, number: int) -> bool:
        """Whether the session is over because its last number is ``number``."""
        folder, tombstone = _folder(session), Record(secrets.token_hex(8), None, None)
        if not self._versions.create(folder, number + 1, tombstone):
            return not self._look(session, number + 1, clock.now())
        if self._versions.list(folder, number + 2):
            self._versions.delete(folder, [number + 1])
            return False
        with self._lock:
            self._sights[session] = Sight(number + 1, clock.now(), None)
        return True

    def _sweep(self) -> None:
        """Remove what is left of sessions that ended long ago; end those that nobody ever asked about.

        Now, by the bucket's clock, is when the newest heartbeat was written: a session was just opened.
        """
        folders = self._versions.below(SESSIONS)
        now = max(versions[-1].modified for versions in folders.values())
        old = [f for f, versions in folders.items() if now - versions[-1].modified > _TOMBSTONE]
        for folder in old[:_SWEEP]:
            self._clear(folder, folders[folder], now)

    def _clear(self, folder: str, versions: Sequence[Version], now: float) -> None:
        newest, name = versions[-1], folder.rpartition("/")[2]
        record = self._versions.read(folder, newest.number)
        if record is None:
            return
        if record.value is None:
            # The tombstone last: whatever is left without it would look alive.
            self._versions.delete(folder, [version.number for version in versions[:-1]])
            self._versions.delete(folder, [newest.number])
        elif now - newest.modified > _TOMBSTONE + _ttl(name, record.value):
            self._bury(name, newest.number)


class ObjectSession(Session):
    """The owner's side: every keepalive is one more number."""

    def __init__(self, versions: Versions, name: str, ttl: float) -> None:
        self.id = name
        self.ttl = ttl
        self._versions = versions
        self._folder = _folder(name)
        self._over = False
        self._number = 0
        self._oldest = 1
        self._renewed = 0.0

    def begin(self) -> None:
        """Create the first number."""
        self._renewed = clock.now()
        self._next(_owner(self.ttl))

    def keepalive(self) -> None:
        began = clock.now()
        self._check(began)
        if not self._next(_owner(self.ttl)):
            self._over = True
            raise session_lost(self.ttl)
        # An answer that took too long came to a session that others may have seen end.
        self._check(clock.now())
        self._renewed = began
        if self._number - self._oldest >= _KEEP + _BATCH:
            with suppress(PenstockError):
                self._versions.delete(self._folder, range(self._oldest, self._number - _KEEP + 1))
                self._oldest = self._number - _KEEP + 1

    def close(self) -> None:
        if not self._over:
            self._next(None)
            self._over = True

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
        record = Record(secrets.token_hex(8), None, value)
        while not self._versions.create(self._folder, self._number + 1, record):
            found = self._versions.read(self._folder, self._number + 1)
            if found is not None and found.value is None:
                return False
            self._number += 1
        self._number += 1
        return True


def _folder(session: str) -> str:
    return f"{SESSIONS}/{session}"


def _owner(ttl: float) -> bytes:
    return json.dumps({"ttl": ttl, "owner": f"process {os.getpid()} on {socket.gethostname()}"}).encode()


def _ttl(session: str, value: bytes) -> float:
    try:
        return float(json.loads(value)["ttl"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{_folder(session)} is not a session that Penstock wrote") from error

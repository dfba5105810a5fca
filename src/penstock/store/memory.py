"""A store in this process's memory, for tests: fast, and with a clock that the test moves."""

from __future__ import annotations

import bisect
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence

from penstock.store.backends import KeptSession, check_ttl, check_writes, session_lost
from penstock.store.base import Change, Changes, Document, Session, Store, Write


class MemoryStore(Store):
    """Nothing is durable. All users share the one object, from any number of threads."""

    url = "memory:"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._documents: dict[str, Change] = {}
        self._revision = 0
        self._expiries: dict[str, float] = {}

    def get(self, key: str) -> Document | None:
        with self._changed:
            return _document(self._documents.get(key))

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        check_writes([Write(key, expected, value)])
        with self._changed:
            current = _document(self._documents.get(key))
            if (current.version if current else 0) != expected:
                return None
            self._revision += 1
            self._documents[key] = Change(key, value, self._revision)
            self._changed.notify_all()
            return self._revision

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        check_writes(writes)
        return super().cas_many(writes)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        with self._changed:
            keys = sorted(self._documents)
            begin = max(bisect.bisect_left(keys, prefix), bisect.bisect_right(keys, after))
            found = (_document(self._documents[key]) for key in keys[begin:] if key.startswith(prefix))
            return [document for document in found if document][:limit]

    def watch(self, prefix: str, since: int, timeout: float) -> Changes:
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                found = [
                    c for c in self._documents.values() if c.version > since and c.key.startswith(prefix)
                ]
                left = deadline - time.monotonic()
                if found or left <= 0:
                    return Changes(sorted(found, key=lambda change: change.version), self._revision)
                self._changed.wait(left)

    def revision(self) -> int:
        return self._revision

    def session(self, ttl: float) -> Session:
        check_ttl(ttl)
        opened = KeptSession(self, secrets.token_hex(8), ttl)
        with self._changed:
            self._expiries[opened.id] = self._clock() + ttl
        return opened

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        with self._changed:
            now = self._clock()
            return frozenset(s for s in sessions if self._expiries.get(s, now) > now)

    def close(self) -> None:
        """Nothing to let go of."""

    def extend_session(self, session: str, ttl: float) -> None:
        with self._changed:
            if not self.alive([session]):
                raise session_lost(ttl)
            self._expiries[session] = self._clock() + ttl

    def end_session(self, session: str) -> None:
        with self._changed:
            self._expiries.pop(session, None)


def _document(change: Change | None) -> Document | None:
    if change is None or change.value is None:
        return None
    return Document(change.key, change.value, change.version)

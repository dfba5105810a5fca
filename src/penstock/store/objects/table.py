"""What one handle has seen of the documents, in the order in which it noticed."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from penstock.core import clocks
from penstock.store.objects.chains import NOTHING, ChainState

_REMEMBERED = 1000
"""How many documents that are gone a handle remembers, for watches with an older cursor."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest version of a document that was noticed, as the how-manieth thing that was noticed."""

    key: str
    version: int
    sequence: int
    head: ChainState | None
    """What that version is, without its value; None when it was not read."""
    at: float
    """When it was noticed, or read, by our clock."""

    @property
    def gone(self) -> bool:
        return self.head is not None and not self.head.exists


class KnownVersions:
    """By key the newest version that this handle knows. The sequence number is the handle's own cursor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] = {}
        self._gone: dict[str, None] = {}
        self.sequence = 0

    def notice(self, found: Iterable[tuple[str, int]]) -> None:
        """Keys with versions that a listing showed, the oldest change first."""
        with self._lock:
            for key, version in found:
                self._notice(key, version, None)

    def learn(self, key: str, head: ChainState) -> None:
        """A version that was read or written."""
        kept = replace(head, value=None) if head.exists else ChainState(head.number, head.form)
        with self._lock:
            self._notice(key, head.number, kept)

    def miss(self, prefix: str, found: Collection[str], before: int) -> None:
        """A listing under ``prefix``, which began at this sequence number, showed no more than ``found``."""
        with self._lock:
            for seen in list(self._seen.values()):
                if seen.key.startswith(prefix) and seen.key not in found and seen.sequence <= before:
                    self._miss(seen)

    def lose(self, key: str, before: int) -> None:
        """A listing of a document's folder, which began when the sequence was ``before``, showed nothing."""
        with self._lock:
            seen = self._seen.get(key)
            if seen is not None and seen.sequence <= before:
                self._miss(seen)

    def seen(self, key: str) -> Seen | None:
        return self._seen.get(key)

    def head(self, key: str) -> ChainState:
        """The newest version known of a document, if it was read."""
        seen = self._seen.get(key)
        return seen.head if seen and seen.head else NOTHING

    def fresh(self, key: str, seconds: float) -> ChainState:
        """The same, if that was a moment ago."""
        seen = self._seen.get(key)
        return seen.head if seen and seen.head and clocks.now() - seen.at < seconds else NOTHING

    def since(self, prefix: str, cursor: int) -> list[Seen]:
        """What was noticed under ``prefix`` after the cursor, in that order."""
        with self._lock:
            if self.sequence <= cursor:
                return []
            found = [s for s in self._seen.values() if s.sequence > cursor and s.key.startswith(prefix)]
        return sorted(found, key=lambda seen: seen.sequence)

    def after_fork(self) -> None:
        """In a forked child: a lock that no thread of the parent holds."""
        self._lock = threading.Lock()

    def _notice(self, key: str, version: int, head: ChainState | None) -> None:
        seen = self._seen.get(key)
        if seen is None or version > seen.version:
            self.sequence += 1
            self._keep(Seen(key, version, self.sequence, head, clocks.now()))
        elif head is not None and version == seen.version:
            self._keep(replace(seen, head=head, at=clocks.now()))

    def _miss(self, seen: Seen) -> None:
        if not seen.gone:
            # It ended with a version of its own, which was greater than the last one that was seen here.
            self.sequence += 1
            self._keep(Seen(seen.key, seen.version + 1, self.sequence, NOTHING, clocks.now()))

    def _keep(self, seen: Seen) -> None:
        self._seen[seen.key] = seen
        self._gone.pop(seen.key, None)
        if seen.gone:
            self._gone[seen.key] = None
            if len(self._gone) > _REMEMBERED:
                oldest = next(iter(self._gone))
                del self._gone[oldest], self._seen[oldest]

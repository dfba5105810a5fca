"""What one handle has seen of the documents, in the order in which it noticed."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Head:
    """What a handle knows of a version without its value: the id of its write, and whether it deletes."""

    id: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest version of a document that was noticed, as the how-manieth thing that was noticed."""

    key: str
    version: int
    sequence: int
    head: Head | None


class Table:
    """By key the newest version that this handle knows. The sequence number is the handle's own cursor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] = {}
        self.sequence = 0

    def notice(self, found: Iterable[tuple[str, int]]) -> None:
        """Keys with versions that a listing showed, the oldest change first."""
        with self._lock:
            for key, version in found:
                self._notice(key, version, None)

    def learn(self, key: str, version: int, head: Head) -> None:
        """A version that was read or written."""
        with self._lock:
            self._notice(key, version, head)

    def version(self, key: str) -> int:
        """The newest version known of a document, deleted or not; 0 when none is."""
        seen = self._seen.get(key)
        return seen.version if seen else 0

    def head(self, key: str, version: int) -> Head | None:
        """What is known of a version; None when it was never read, or is not the newest one known."""
        seen = self._seen.get(key)
        return seen.head if seen and seen.version == version else None

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

    def _notice(self, key: str, version: int, head: Head | None) -> None:
        seen = self._seen.get(key)
        if seen is None or version > seen.version:
            self.sequence += 1
            self._seen[key] = Seen(key, version, self.sequence, head)
        elif head is not None and version == seen.version and seen.head is None:
            self._seen[key] = replace(seen, head=head)

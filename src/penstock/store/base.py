"""The coordination store: small versioned documents, compare-and-set, and liveness.

What a backend must give is little, so that SQLite, etcd and an object store can all be one. Rules
for what a document may become do not live here: they are pure functions above this layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self


@dataclass(frozen=True, slots=True)
class Document:
    """A value as it stood at a version. Versions of one key only grow, also across deletion."""

    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Write:
    """One compare-and-set: ``expected`` is the version read before, 0 for "must not exist".

    ``value`` None deletes the document.
    """

    key: str
    expected: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Change:
    """What a watch reports: the document as it is now, or None in place of a deleted one's value."""

    key: str
    value: bytes | None
    version: int


class Changes(NamedTuple):
    """What a watch saw, oldest first, and the cursor from which to watch on."""

    changes: Sequence[Change]
    until: int


class Session(ABC):
    """Proof of life. The *store* judges whether a session is alive; nobody compares clocks.

    A session that was lost stays lost: its owner opens a new one under a new id.
    """

    id: str
    ttl: float

    @abstractmethod
    def keepalive(self) -> None:
        """Extend the session by its ttl from now. Raises `SessionLost` when it is already over."""

    @abstractmethod
    def close(self) -> None:
        """End the session now, so that nobody has to wait for its ttl. Harmless when repeated."""


class Store(ABC):
    """Versioned documents under slash-separated keys. Safe for use by many threads and processes.

    Every method raises `StoreUnavailable` when the backend does not answer.
    """

    url: str

    @abstractmethod
    def get(self, key: str) -> Document | None:
        """The newest committed document, or None."""

    @abstractmethod
    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        """Write if the document still has version ``expected``; the new version, or None if not.

        None means that nothing was written. A caller that cannot tell whether an earlier try was
        applied reads the document back: commands carry request ids for that purpose.
        """

    @abstractmethod
    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        """Documents whose key starts with ``prefix`` and is greater than ``after``, in key order."""

    @abstractmethod
    def watch(self, prefix: str, since: int, timeout: float) -> Changes:
        """Changes under ``prefix`` after the cursor ``since``, oldest first.

        Waits up to ``timeout`` seconds for the first one; empty when there was none. Only the
        newest change of each key is certain to be seen, and a deletion that nobody watched for a long
        time may be missed. A document that this handle never saw before may be reported although it is
        older than the cursor.
        """

    @abstractmethod
    def revision(self) -> int:
        """A cursor that stands after everything written so far, to start a watch on this handle.

        Take it before reading what is watched: then no change falls in between.
        """

    @abstractmethod
    def session(self, ttl: float) -> Session:
        """Open a session that lives ``ttl`` seconds unless it is kept alive."""

    @abstractmethod
    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        """Those of the given session ids that are alive now."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and files. Sessions are not ended by this."""

    def get_many(self, keys: Sequence[str]) -> Sequence[Document | None]:
        """`get` for several keys; a backend overrides it when it can save round trips."""
        return [self.get(key) for key in keys]

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        """Several independent compare-and-sets, each with its own outcome.

        It is no transaction: some may succeed while others fail. One that cannot be asked for at all
        (a bad key, a huge value) fails the call before anything is written. A backend overrides it to make
        them durable together, which is what makes group commit cheap.
        """
        return [self.cas(w.key, w.expected, w.value) for w in writes]

    def scan(self, prefix: str, page: int = 500) -> Iterator[Document]:
        """Every document under ``prefix``, in key order, in pages."""
        after = ""
        while documents := self.list(prefix, after, page):
            yield from documents
            after = documents[-1].key

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""The supervisors of a stream: which commands keep instances of it running, and how many each of them should.

A supervisor is entered under the stream's documents with a session of the store, which judges whether it is
alive. When the number of instances was wished for the stream as a whole, its supervisors share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.codec import SPACED, DocumentFormat
from penstock.store.base import Store
from penstock.streams.layout import Layout


@dataclass(frozen=True, slots=True)
class SupervisorEntry:
    """A supervisor as the others see it. ``instances`` is how many it was told to run by its own command."""

    id: str
    session: str
    host: str
    pid: int
    instances: int
    since: str = ""


SUPERVISOR = DocumentFormat(SupervisorEntry, "the entry of a supervisor", text=SPACED)


class Supervisors:
    """The entries of one stream."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._prefix = layout.supervisors

    @property
    def prefix(self) -> str:
        return self._prefix

    def enter(self, entry: SupervisorEntry) -> None:
        """Enter a supervisor, or replace what it entered before. Harmless when repeated."""
        key, value = self._prefix + entry.id, SUPERVISOR.encode(entry)
        while True:
            document = self._store.get(key)
            if document is not None and document.value == value:
                return
            if self._store.cas(key, document.version if document else 0, value) is not None:
                return

    def leave(self, entry: SupervisorEntry) -> None:
        """Take an entry out. Harmless when repeated."""
        document = self._store.get(self._prefix + entry.id)
        if document is not None:
            self._store.cas(document.key, document.version, None)

    def live(self) -> list[SupervisorEntry]:
        """Those that are alive by the store's judgement, in order of their ids."""
        entries = [SUPERVISOR.decode(each.key, each.value) for each in self._store.scan(self._prefix)]
        alive = self._store.alive([entry.session for entry in entries])
        return [entry for entry in entries if entry.session in alive]

    def sweep(self) -> None:
        """Remove the entries of supervisors that are gone. Death is final: anyone may do it."""
        for document in list(self._store.scan(self._prefix)):
            entry = SUPERVISOR.decode(document.key, document.value)
            if not self._store.alive([entry.session]):
                self._store.cas(document.key, document.version, None)


def share(total: int, ids: Sequence[str], me: str) -> int:
    """How many of ``total`` instances the supervisor ``me`` runs; none if it is not one of ``ids``.

    Every supervisor computes the same from the same, so that nobody has to hand out shares.
    """
    if me not in ids:
        return 0
    place = sorted(ids).index(me)
    return total // len(ids) + (place < total % len(ids))

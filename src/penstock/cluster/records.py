"""The records of a cluster in the store: acks, decisions and past assignments."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.cluster import codec
from penstock.cluster.keys import Keys
from penstock.cluster.model import Ack, Decision, Seat, Snapshot
from penstock.store.base import Store


class Records:
    """Small documents beside the control. All but acks are written once and never changed."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self.store = store
        self.keys = keys

    # acks: one document for each member and scope, which its member overwrites

    def acks(self, scope: str) -> list[Ack]:
        documents = self.store.scan(self.keys.acks(scope))
        return [codec.decode_ack(document.key, document.value) for document in documents]

    def write_ack(self, scope: str, ack: Ack, known: int | None = None) -> int:
        """The version of the member's document, of which ``known`` was the last; it saves a reading.

        Harmless when repeated, and when a newer ack stands there: that of the same id's next session.
        """
        key, value = self.keys.ack(scope, ack.member), codec.encode_ack(ack)
        while True:
            if known is None:
                document = self.store.get(key)
                known = document.version if document else 0
                if document is not None:
                    found = codec.decode_ack(key, document.value)
                    if found == ack or found.epoch > ack.epoch:
                        return known
            version = self.store.cas(key, known, value)
            if version is not None:
                return version
            known = None

    def prune_acks(self, scope: str, seats: Collection[Seat]) -> None:
        """Remove the acks of members that have no seat any more."""
        known = {self.keys.ack(scope, seat.member) for seat in seats}
        for document in self.store.list(self.keys.acks(scope)):
            if document.key not in known:
                self.store.cas(document.key, document.version, None)

    # decisions

    def decision(self, scope: str, epoch: int) -> Decision | None:
        """How an epoch ended; None if that was not decided, or so long ago that it was pruned."""
        document = self.store.get(self.keys.epoch(scope, epoch))
        return codec.decode_decision(document.key, document.value) if document else None

    def decide(self, scope: str, decision: Decision) -> Decision:
        """The decision of the epoch: this one, or the one that somebody else made before.

        The create-only write is the moment at which an epoch is committed or given up.
        """
        key = self.keys.epoch(scope, decision.epoch)
        while True:
            if self.store.cas(key, 0, codec.encode_decision(decision)) is not None:
                return decision
            if (found := self.decision(scope, decision.epoch)) is not None:
                return found

    def decisions(self, scope: str) -> Iterator[Decision]:
        """Those that are kept, oldest first."""
        for document in self.store.scan(self.keys.epochs(scope)):
            yield codec.decode_decision(document.key, document.value)

    def prune_decisions(self, scope: str, before: int, committed: int) -> None:
        """Remove the decisions of epochs below ``before``, but not that of the ``committed`` one."""
        kept = self.keys.epoch(scope, committed)
        self._prune(self.keys.epochs(scope), self.keys.epoch(scope, before), kept)

    # assignments

    def archive(self, snapshot: Snapshot) -> None:
        """Keep a copy of the assignment for the history. Harmless when repeated."""
        self.store.cas(self.keys.assignment(snapshot.version), 0, codec.encode_snapshot(snapshot))

    def assignments(self) -> Iterator[Snapshot]:
        """Those that are kept, oldest first."""
        for document in self.store.scan(self.keys.assignments):
            yield codec.decode_snapshot(document.key, document.value)

    def prune_assignments(self, before: int) -> None:
        self._prune(self.keys.assignments, self.keys.assignment(before))

    def _prune(self, prefix: str, end: str, kept: str = "") -> None:
        for document in self.store.list(prefix, limit=100):
            if document.key >= end:
                return
            if document.key != kept:
                self.store.cas(document.key, document.version, None)

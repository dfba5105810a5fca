"""The records of a cluster in the store: acks, decisions and past assignments.

A document has a bounded size, and a decision has any size. What grows with members and parts stands in the
record of a decision while it is small. Otherwise it is cut into *pages*, documents of their own that are
written before the record, which then has their number and digest. The record alone decides: pages that no
record names are waste, and are pruned like those of old epochs. Their keys have the digest, so that two
leaders who decide the same epoch never share a page unless it says the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.control.cluster.documents import codec
from penstock.control.cluster.documents.codec import Pages
from penstock.control.cluster.documents.keys import CLUSTERS, Keys
from penstock.control.cluster.rules.model import BarrierAck, Decision, Outcome, Seat, Snapshot
from penstock.errors import CorruptFile, UsageError
from penstock.store.backends import LAST
from penstock.store.base import Document, Store

INLINE = 128 * 1024
"""The most bytes of a record that has no pages. Records are read by the hundred, so they stay below."""
PAGE = 256 * 1024
MOST = 128
"""How many pages a decision has at most: 32 MiB, for some 30,000 members of a stream."""


@dataclass(frozen=True, slots=True)
class Sheets:
    """A decision as it is written: its record, and the pages that the record names."""

    record: bytes
    named: Pages | None = None
    pages: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record as it was read; ``head`` lacks what stands on ``pages``, if there are any."""

    key: str
    version: int
    head: Decision
    pages: Pages | None = None


def cut(decision: Decision) -> Sheets:
    """How ``decision`` is written. `UsageError` if it is too large even for pages."""
    whole = codec.DECISION.encode(decision)
    if len(whole) <= INLINE:
        return Sheets(whole)
    body = codec.BODY.encode(codec.Body.of(decision))
    count = -(-len(body) // PAGE)
    if count > MOST:
        raise UsageError(
            f"the decision of epoch {decision.epoch} would have {len(body):,} bytes, "
            f"of {MOST * PAGE:,} at most",
            left="the epoch was given up, and nothing of it is visible",
            hint="let members ack less: what is large goes to storage, and its path into the ack",
        )
    named = Pages(count, len(body), hashlib.sha256(body).hexdigest())
    pages = [body[begin : begin + PAGE] for begin in range(0, len(body), PAGE)]
    return Sheets(codec.RECORD.encode(codec.PagedDecision(decision, named)), named, pages)


def joined(recorded: Recorded, pages: Sequence[bytes]) -> Decision:
    """The decision of a record and its pages; `CorruptFile` if they do not belong together."""
    assert recorded.pages is not None
    body = b"".join(pages)
    if hashlib.sha256(body).hexdigest() != recorded.pages.sha256:
        raise CorruptFile(
            f"the pages of the document {recorded.key} do not match its checksum",
            left="it was not changed",
            hint="restore the store from a backup",
        )
    return replace(recorded.head, **codec.BODY.decode(recorded.key, body).members())


_PAGES = 8
"""How many pages are listed at once: each may have a quarter of a megabyte."""


class Records:
    """Small documents beside the control. All but acks are written once and never changed."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self.store = store
        self.keys = keys

    # acks: one document for each member and scope, which its member overwrites

    def acks(self, scope: str) -> list[BarrierAck]:
        documents = self.store.scan(self.keys.acks(scope))
        return [codec.ACK.decode(document.key, document.value) for document in documents]

    def write_ack(self, scope: str, ack: BarrierAck, known: int | None = None) -> int:
        """The version of the member's document, of which ``known`` was the last; it saves a reading.

        Harmless when repeated, and when a newer ack stands there: that of the same id's next session.
        """
        key, value = self.keys.ack(scope, ack.member), codec.ACK.encode(ack)
        while True:
            if known is None:
                document = self.store.get(key)
                known = document.version if document else 0
                if document is not None:
                    found = codec.ACK.decode(key, document.value)
                    if found == ack or found.epoch > ack.epoch:
                        return known
            version = self.store.cas(key, known, value)
            if version is not None:
                return version
            known = None

    def prune_acks(self, scope: str, seats: Collection[Seat]) -> None:
        """Remove the acks of members that have no seat any more."""
        known = {self.keys.ack(scope, seat.member) for seat in seats}
        for document in self.store.scan(self.keys.acks(scope)):
            if document.key not in known:
                self.store.cas(document.key, document.version, None)

    # decisions: one record for each epoch, and pages for what one document does not hold

    def decision(self, scope: str, epoch: int) -> Decision | None:
        """How an epoch ended; None if that was not decided, or so long ago that it was pruned."""
        recorded = self._recorded(self.keys.epoch(scope, epoch))
        return self.whole(scope, recorded) if recorded else None

    def outcome(self, scope: str, epoch: int) -> Outcome | None:
        """`decision` where only its outcome matters: no page is read."""
        recorded = self._recorded(self.keys.epoch(scope, epoch))
        return recorded.head.outcome if recorded else None

    def decide(self, scope: str, decision: Decision) -> Decision:
        """The decision of the epoch: this one, or the one that somebody else made before.

        The create-only write of the record is the moment at which an epoch is committed or given up. Pages
        are there before.
        """
        key, sheets = self.keys.epoch(scope, decision.epoch), cut(decision)
        while True:
            if sheets.named is not None:
                for number, page in enumerate(sheets.pages):
                    # One that is there already has the same bytes: its key has their digest.
                    self.store.cas(
                        self.keys.page(scope, decision.epoch, sheets.named.sha256, number), 0, page
                    )
            if self.store.cas(key, 0, sheets.record) is not None:
                return decision
            if (found := self.decision(scope, decision.epoch)) is not None:
                return found

    def decisions(self, scope: str, after: int = 0) -> Iterator[Decision]:
        """Those that are kept of epochs after ``after``, oldest first."""
        for recorded in self.recorded(scope, after):
            if (decision := self.whole(scope, recorded)) is not None:
                yield decision

    def recorded(self, scope: str, after: int = 0, upto: int | None = None) -> Iterator[Recorded]:
        """The records of epochs after ``after``, up to ``upto``, oldest first; their pages are not read."""
        end = self.keys.epoch(scope, upto) if upto is not None else None
        for document in listed(self.store, self.keys.epochs(scope), self.keys.epoch(scope, max(0, after))):
            if end is not None and document.key > end:
                return
            yield _recorded(document)

    def whole(self, scope: str, recorded: Recorded) -> Decision | None:
        """The decision of a record with what stands on its pages; None if it was pruned meanwhile."""
        while recorded.pages is not None:
            if (pages := self._pages(scope, recorded.head.epoch, recorded.pages)) is not None:
                return joined(recorded, pages)
            again = self._recorded(recorded.key)
            if again is None:
                return None
            if again.version == recorded.version:
                raise CorruptFile(
                    f"pages of the document {recorded.key} are missing",
                    left="it was not changed",
                    hint="restore the store from a backup",
                )
            recorded = again
        return recorded.head

    def prune_decisions(self, scope: str, before: int, committed: int) -> None:
        """Remove the decisions of epochs below ``before``, but not that of the ``committed`` one.

        Records go first: whoever finds a page missing looks whether its record is. Pages that were left
        without one, by somebody who died here or before it decided, go with those of their epoch.
        """
        keys = self.keys
        self._prune(keys.epochs(scope), keys.epoch(scope, before), keys.epoch(scope, committed))
        self._prune(keys.pages(scope), keys.pages_of(scope, before), keys.pages_of(scope, committed), _PAGES)

    def _recorded(self, key: str) -> Recorded | None:
        document = self.store.get(key)
        return _recorded(document) if document else None

    def _pages(self, scope: str, epoch: int, named: Pages) -> list[bytes] | None:
        """The pages of a record; None if one is not there."""
        found: list[bytes] = []
        for number in range(named.count):
            # One by one: no backend has to take them all for one answer.
            document = self.store.get(self.keys.page(scope, epoch, named.sha256, number))
            if document is None:
                return None
            found.append(document.value)
        return found

    # assignments

    def archive(self, snapshot: Snapshot) -> None:
        """Keep a copy of the assignment for the history. Harmless when repeated."""
        self.store.cas(self.keys.assignment(snapshot.version), 0, codec.SNAPSHOT.encode(snapshot))

    def assignments(self) -> Iterator[Snapshot]:
        """Those that are kept, oldest first."""
        for document in self.store.scan(self.keys.assignments):
            yield codec.SNAPSHOT.decode(document.key, document.value)

    def prune_assignments(self, before: int) -> None:
        self._prune(self.keys.assignments, self.keys.assignment(before))

    def _prune(self, prefix: str, end: str, kept: str = "", page: int = 100) -> None:
        """Remove the documents below ``end``, but not those whose keys begin with ``kept``."""
        for document in listed(self.store, prefix, "", page):
            if document.key >= end:
                return
            if not kept or not document.key.startswith(kept):
                self.store.cas(document.key, document.version, None)


def listed(store: Store, prefix: str, after: str = "", page: int = 100) -> Iterator[Document]:
    """Every document under ``prefix`` whose key is greater than ``after``, in key order."""
    while documents := store.list(prefix, after, page):
        yield from documents
        after = documents[-1].key


def clusters(store: Store) -> list[str]:
    """The names of the clusters that have any document, in order. One document of each is read."""
    names: list[str] = []
    while documents := store.list(CLUSTERS, Keys(names[-1]).root + LAST if names else "", 1):
        names.append(documents[0].key.split("/")[1])
    return sorted(names)


def _recorded(document: Document) -> Recorded:
    found = codec.RECORD.decode(document.key, document.value)
    return Recorded(document.key, document.version, found.decision, found.pages)

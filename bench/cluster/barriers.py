"""(b) How long a barrier takes, from its announcement to its publication, in multiples of one store write."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from statistics import median

from bench.cluster.members import SCOPE, member, members, wait_until
from bench.cluster.stores import stores
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result
from penstock.config import ClusterConfig
from penstock.control.cluster.candidate import Candidate
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.leader import Duties
from penstock.control.cluster.participant import Bystander, Participation
from penstock.control.cluster.rules.model import Outcome
from penstock.store import Store, open_store

MEMBERS = (2, 4, 8)
# Long enough that no renewal falls into a measurement: they are made between them.
CONFIG = ClusterConfig(lease_ttl=120.0, renew_every=60.0, member_ttl=120.0)
BARRIERS = 30
WRITES = 100


def run(lab: Lab) -> Iterator[Result]:
    for name, urls in stores(lab):
        for count in MEMBERS:
            url = next(urls)
            others = [f"member-{number}" for number in range(1, count)]
            with open_store(url) as store, Leader(store) as leader, members(url, others, CONFIG):
                wait_until(lambda lead=leader, n=count: lead.seats() == n, f"{count} members")  # type: ignore[misc]
                yield compare(
                    f"(b) barrier of {count} members ÷ one write, {name} (ms)",
                    leader.barrier,
                    lambda s=store: _write(s),  # type: ignore[misc]
                    repeat=lab.repeat,
                )


class Leader:
    """The leader's part, driven by hand so that nothing but the barrier is in the measurement."""

    def __init__(self, store: Store) -> None:
        keys = Keys(CONFIG.name)
        self._room = Room(store, keys)
        records, roster = Records(store, keys), Roster(store, keys)
        self._session = store.session(CONFIG.member_ttl)
        me = member("member-0", self._session.id)
        roster.join(me)
        self._candidate = Candidate(self._room, me.id, me.id, CONFIG)
        self._duties = Duties(self._room, records, roster, self._candidate, CONFIG, {})
        self._part = Participation(self._room, records, SCOPE, me.seat, Bystander())
        self._store = store
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._take_part, daemon=True)

    def __enter__(self) -> Leader:
        self._candidate.step()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._session.close()

    def seats(self) -> int:
        self._duties.step()
        return len(self._room.read().assignment.seats)

    def barrier(self) -> float:
        """Milliseconds for one barrier: the median of many."""
        self._session.keepalive()
        self._candidate.step()
        return median(self._one() for _ in range(BARRIERS))

    def _one(self) -> float:
        began = time.perf_counter()
        decision = self._duties.epoch(SCOPE)
        seconds = time.perf_counter() - began
        if decision is None or decision.outcome is not Outcome.COMMIT:
            raise RuntimeError(f"the barrier did not commit: {decision}")
        return seconds * 1e3

    def _take_part(self) -> None:
        since = self._store.revision()
        while not self._over.is_set():
            self._part.step()
            _, since = self._room.watch(since, 0.5)


def _write(store: Store) -> float:
    """Milliseconds for one compare-and-set of a small document: the median of many."""
    return median(_timed_write(store) for _ in range(WRITES))


def _timed_write(store: Store) -> float:
    document = store.get("bench/write")
    began = time.perf_counter()
    store.cas("bench/write", document.version if document else 0, b"x" * 200)
    return (time.perf_counter() - began) * 1e3

"""Thousands of members: epochs are still committed, and nobody is let in for whom there is no room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config import ClusterConfig
from penstock.control.cluster.candidate import Candidate
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.leader import Duties
from penstock.control.cluster.node import Node
from penstock.control.cluster.participant import Bystander
from penstock.control.cluster.rules import admission
from penstock.control.cluster.rules.model import BarrierAck, BarrierKind, Decision, Member, Outcome, Seat
from penstock.errors import UsageError
from penstock.storage import Storage
from penstock.store.backends import MAX_DOCUMENT
from penstock.store.base import Store
from penstock.store.memory import MemoryStore
from penstock.streams.layout import Layout
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.model import SCOPE, Brought, Pointer, Standing
from tests.control.cluster.support import Clock, Line

LAYOUT = Layout("ticks", "0001")
CONFIG = ClusterConfig(LAYOUT.cluster, vnodes=16, history=8, member_ttl=1e6)
KEYS = Keys(LAYOUT.cluster)
DIGEST = "0123456789abcdef" * 4


class Crowd:
    """Members that ack what a stream's instances ack, and one of them that leads."""

    def __init__(self, store: Store, *names: str) -> None:
        self.clock = Clock()
        self.store = store
        self.line = Line(store, self.clock)
        self.line.idle = self.answer
        self.records, self.roster = Records(self.line, KEYS), Roster(self.line, KEYS)
        self.room = Room(self.line, KEYS)
        self.members: list[Member] = []
        self.join(*names)
        leader = self.members[0]
        self.candidate = Candidate(
            self.room, leader.id, f"{leader.id}#{leader.session}", replace(CONFIG, lease_ttl=1e6), self.clock
        )
        self.candidate.step()
        self.duties = Duties(
            self.room, self.records, self.roster, self.candidate, CONFIG, {}, self.clock, self.clock.move
        )
        self.duties.step()

    def join(self, *names: str) -> None:
        for name in names:
            member = Member(name, self.store.session(1e6).id, "1")
            self.members.append(member)
            Roster(self.store, KEYS).join(member)

    def answer(self) -> None:
        control = Room(self.store, KEYS).read()
        barrier = control.scope(SCOPE).open
        assert barrier is not None
        records = Records(self.store, KEYS)
        for seat in barrier.required:
            ack = _ack(seat, barrier.epoch, barrier.assignment)
            records.write_ack(SCOPE, ack if barrier.kind is BarrierKind.EPOCH else replace(ack, files=()))

    def epoch(self) -> Decision:
        decision = self.duties.epoch(SCOPE)
        assert decision is not None
        return decision

    @property
    def largest(self) -> int:
        return max(len(document.value) for document in self.store.scan("cluster/"))


def _names(count: int, begin: int = 0) -> list[str]:
    return [f"instance-{number:05}.example.internal" for number in range(begin, begin + count)]


def _ack(seat: Seat, epoch: int, assignment: int) -> BarrierAck:
    def pointer(kind: str) -> Pointer:
        return Pointer(f"{LAYOUT.root}/{kind}/{epoch:016}-{seat.member}-01234567.json", DIGEST)

    standing = Standing(pointer("states"), None, {"source": 1_700_000_000_000_000}, pointer("finished"))
    brought = Brought(seat.member, pointer("portions"), 1000, 100_000)
    return BarrierAck(
        seat.member, seat.session, epoch, assignment, {}, standing.encode(), (brought.encode(),), epoch
    )


def test_two_thousand_instances_commit_epochs() -> None:
    crowd = Crowd(MemoryStore(), *_names(2000))
    first, second = crowd.epoch(), crowd.epoch()
    assert (first.outcome, second.outcome) == (Outcome.COMMIT, Outcome.COMMIT)
    assert sum(len(text) for text in second.frontiers.values()) > MAX_DOCUMENT
    assert crowd.records.decision(SCOPE, 2) == second
    assert list(crowd.records.decisions(SCOPE)) == [first, second]
    assert crowd.largest <= MAX_DOCUMENT
    # Whoever leads next goes on from there, and so do readers of the stream.
    drained = crowd.duties._barrier(SCOPE, BarrierKind.DRAIN, crowd.room.read().assignment.seats[:3])
    assert drained is not None and len(drained.frontiers) == 2000
    log = EpochLog(crowd.store, Storage("memory:"), LAYOUT)
    assert [(epoch.number, epoch.rows) for epoch in log.entries(0)] == [(1, 2_000_000), (2, 2_000_000)]


def test_pages_go_with_their_epochs() -> None:
    crowd = Crowd(MemoryStore(), *_names(200))
    for _ in range(40):
        crowd.epoch()
    epochs = {int(document.key.split("/")[4]) for document in crowd.store.scan(KEYS.pages(SCOPE))}
    assert epochs == {decision.epoch for decision in crowd.records.decisions(SCOPE)}
    assert len(epochs) <= CONFIG.history + 16


def test_an_epoch_that_many_do_not_answer_is_given_up_with_a_short_reason() -> None:
    crowd = Crowd(MemoryStore(), *_names(1000))
    crowd.line.idle = lambda: None
    decision = crowd.epoch()
    assert decision.outcome is Outcome.ABORT
    assert decision.reason.startswith("no answer from instance-00000.example.internal, ")
    assert decision.reason.endswith(" and 990 others within 30 s")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_ROOM", 4000)


def test_who_has_no_room_in_the_control_gets_no_seat_and_stops_nobody(narrow: None) -> None:
    crowd = Crowd(MemoryStore(), *_names(10))
    crowd.epoch()
    crowd.join(*_names(200, 10))
    crowd.duties.step()
    crowd.duties.step()
    seats = crowd.room.read().assignment.seats
    assert 10 < len(seats) < 100
    assert {seat.member for seat in seats} >= set(_names(10))
    assert crowd.epoch().outcome is Outcome.COMMIT
    assert len(crowd.store.get(KEYS.control).value) <= 4000  # type: ignore[union-attr]


def test_after_a_restart_of_all_everybody_gets_a_seat_again(narrow: None) -> None:
    """The seats of those that are gone stand in the way for one rotation, and not for ever."""
    crowd = Crowd(MemoryStore(), *_names(30))
    crowd.epoch()
    for member in crowd.members[1:]:
        crowd.roster.leave(member)
    crowd.join(*_names(29, 1))
    for _ in range(4):
        crowd.duties.step()
    sessions = {member.session for member in (crowd.members[0], *crowd.members[30:])}
    assert {seat.session for seat in crowd.room.read().assignment.seats} == sessions


def test_joining_a_cluster_that_is_full_is_refused(narrow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.cluster.node._MANY", 10)
    crowd = Crowd(MemoryStore(), *_names(100))
    crowd.epoch()
    node = Node(crowd.store, Member("late", "", "1"), CONFIG, {SCOPE: Bystander()}, {})
    with pytest.raises(UsageError, match="has 100 members, and its control document has no room") as caught:
        node.pulse()
    assert caught.value.hint
    assert "late" not in {member.id for member in crowd.roster.all()}

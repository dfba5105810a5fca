"""The documents beside the control: written once, read by all, and pruned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.rules.model import BarrierAck, BarrierKind, Decision, Outcome, Seat, Snapshot
from penstock.errors import StoreUnavailable
from penstock.store.memory import MemoryStore
from tests.control.cluster.support import KEYS, SCOPE, Clock, Line, cut

YES = Decision(1, Outcome.COMMIT, BarrierKind.EPOCH, 1, 1, 0, states={"p": "1"}, request="r1")
NO = replace(YES, outcome=Outcome.ABORT, states={}, token=2, request="r2")
ACK = BarrierAck("ann", "s1", 5, 1, {"p": "5"})


@pytest.fixture
def records() -> Records:
    return Records(MemoryStore(), KEYS)


@pytest.mark.parametrize(("first", "second"), [(YES, NO), (NO, YES)])
def test_the_first_decision_stands_for_ever(records: Records, first: Decision, second: Decision) -> None:
    assert records.decide(SCOPE, first) == first
    assert records.decide(SCOPE, second) == first
    assert records.decision(SCOPE, 1) == first
    assert records.decide(SCOPE, first) == first


def test_a_decision_whose_answer_was_lost_is_found_again(records: Records) -> None:
    line = Line(records.store, Clock())
    line.after = lambda call, key: cut(call, key) if call == "cas" else None
    with pytest.raises(StoreUnavailable):
        Records(line, KEYS).decide(SCOPE, YES)
    line.after = lambda call, key: None
    assert Records(line, KEYS).decide(SCOPE, YES) == YES


def test_scopes_have_their_own_decisions(records: Records) -> None:
    records.decide("one", YES)
    records.decide("two", NO)
    assert (records.decision("one", 1), records.decision("two", 1)) == (YES, NO)
    assert records.decision("three", 1) is None


def test_decisions_are_listed_and_pruned_in_order(records: Records) -> None:
    for epoch in (1, 2, 9, 10, 11, 100):
        records.decide(SCOPE, replace(YES, epoch=epoch))
    assert [d.epoch for d in records.decisions(SCOPE)] == [1, 2, 9, 10, 11, 100]
    records.prune_decisions(SCOPE, before=11, committed=2)
    assert [d.epoch for d in records.decisions(SCOPE)] == [2, 11, 100]
    records.prune_decisions(SCOPE, before=-5, committed=0)
    assert [d.epoch for d in records.decisions(SCOPE)] == [2, 11, 100]


def test_an_ack_replaces_the_one_before(records: Records) -> None:
    records.write_ack(SCOPE, ACK)
    records.write_ack(SCOPE, replace(ACK, epoch=6))
    records.write_ack(SCOPE, replace(ACK, member="ben"))
    assert [(ack.member, ack.epoch) for ack in records.acks(SCOPE)] == [("ann", 6), ("ben", 5)]
    assert records.acks("other") == []


def test_the_same_ack_again_is_not_written(records: Records) -> None:
    records.write_ack(SCOPE, ACK)
    revision = records.store.revision()
    records.write_ack(SCOPE, ACK)
    assert records.store.revision() == revision


def test_acks_of_members_without_a_seat_are_pruned(records: Records) -> None:
    for member in ("ann", "ben", "cyd"):
        records.write_ack(SCOPE, replace(ACK, member=member))
    records.prune_acks(SCOPE, [Seat("ben", "any")])
    assert [ack.member for ack in records.acks(SCOPE)] == ["ben"]


def test_an_assignment_is_kept_as_it_was_first(records: Records) -> None:
    first = Snapshot(1, 1, (Seat("ann", "s1"),), (0, 0), "hash")
    records.archive(first)
    records.archive(replace(first, token=9))
    records.archive(replace(first, version=2))
    assert list(records.assignments()) == [first, replace(first, version=2)]
    records.prune_assignments(before=2)
    assert [snapshot.version for snapshot in records.assignments()] == [2]

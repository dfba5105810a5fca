"""A node whose session is over: everything is let go, and a new session begins anew."""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.leader import steady
from penstock.control.cluster.node import Node
from penstock.control.cluster.participant import EpochWork
from penstock.control.cluster.rules.model import Barrier, Member
from penstock.errors import LeadershipLost, SessionLost, StoreUnavailable
from penstock.store.memory import MemoryStore
from tests.control.cluster.support import CONFIG, KEYS, SCOPE, Clock, Counting, Line, cut


class Forgetful(MemoryStore):
    """While ``silent``: sessions are extended, and nobody is told so."""

    silent = False

    def extend_session(self, session: str, ttl: float) -> None:
        super().extend_session(session, ttl)
        if self.silent:
            raise StoreUnavailable


class Life:
    """A node that the test drives step by step; it works on a barrier while its leader waits for that."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = Forgetful(self.clock)
        self.line = Line(self.store, self.clock)
        self.participant = Counting("ann")
        scopes, move = {SCOPE: self.participant}, self.clock.move
        member = Member("ann", "", "1")
        self.node = Node(self.line, member, CONFIG, scopes, {SCOPE: steady(1.0)}, self.clock, move)

    def session(self) -> str | None:
        return self.node.session

    def turn(self) -> None:
        self.node.pulse()
        self.line.idle = self.take_part
        self.node.lead()
        self.take_part()

    def take_part(self) -> None:
        self.line.idle = lambda: None
        self.node.take_part(SCOPE)

    def end_session(self) -> None:
        self.clock.move(CONFIG.member_ttl)
        with pytest.raises(SessionLost):
            self.node.pulse()


def test_a_lost_session_fences_everything_and_a_new_one_begins_anew() -> None:
    life = Life()
    life.turn()
    session = life.session()
    assert life.participant.log == ["assigned 1", "epoch 1", "committed 1"]
    life.end_session()
    assert life.session() is None
    life.node.take_part(SCOPE)
    assert life.participant.log[3:] == ["fenced"]
    assert life.participant.owned == {}
    life.node.take_part(SCOPE)
    assert life.participant.log[3:] == ["fenced"], "once is enough"
    for _ in range(20):
        life.turn()
    assert life.session() not in (None, session)
    assert life.participant.log[4] == "assigned 2"


def test_between_two_turns_a_new_session_still_fences_the_old_one() -> None:
    life = Life()
    life.turn()
    life.end_session()
    life.node.pulse()
    life.node.take_part(SCOPE)
    assert life.participant.log == ["assigned 1", "epoch 1", "committed 1", "fenced"]


def test_a_participant_that_cannot_be_fenced_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life()
    life.turn()
    life.end_session()
    with monkeypatch.context() as broken:
        broken.setattr(life.participant, "fenced", lambda: cut("fenced", ""))
        with pytest.raises(StoreUnavailable):
            life.node.take_part(SCOPE)
    life.node.take_part(SCOPE)
    assert life.participant.log[-1] == "fenced"


def test_a_session_that_only_seems_to_be_over_does_not_keep_its_id() -> None:
    """Its renewals came through and their answers did not: the store thinks that it lives."""
    life = Life()
    life.turn()
    former = life.session()
    assert former is not None
    life.store.silent = True
    while life.session() is not None:
        life.clock.move(0.5)
        with suppress(StoreUnavailable):
            life.node.pulse()
        life.node.keep_watch()
    assert life.store.alive([former])
    life.store.silent = False
    life.node.pulse()
    assert life.session() not in (None, former)
    assert not life.store.alive([former])


def test_a_few_renewals_may_fail() -> None:
    life = Life()
    life.turn()
    session = life.session()
    life.store.silent = True
    for _ in range(8):
        life.clock.move(0.5)
        with suppress(StoreUnavailable):
            life.node.pulse()
    life.store.silent = False
    life.turn()
    assert life.session() == session
    assert "fenced" not in life.participant.log


def test_a_session_that_runs_out_in_the_middle_of_a_call_is_fenced_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the store cannot be reached, and every thread but the one with the clock waits for it."""
    life = Life()
    life.turn()
    former, prepare = life.session(), life.participant.prepare

    def slow(barrier: Barrier) -> EpochWork:
        life.clock.move(CONFIG.member_ttl * 0.95)
        life.node.keep_watch()
        assert life.session() is None
        assert life.participant.log[-1] == "fenced"
        return prepare(barrier)

    monkeypatch.setattr(life.participant, "prepare", slow)
    life.clock.move(1.0)
    with suppress(SessionLost):
        life.turn()
    monkeypatch.undo()
    assert not [ack for ack in life.node.records.acks(SCOPE) if ack.epoch > 1], "nothing was acked"
    life.turn()
    assert "fenced" in life.participant.log[life.participant.log.index("fenced") + 1 :], "what began since"
    assert life.session() not in (None, former)


def test_what_was_fenced_by_leaving_is_not_acked() -> None:
    """Whoever leaves does not wait for ever for work that does not end; what comes of it counts no more."""
    life = Life()
    life.turn()

    def leave(barrier: Barrier) -> None:
        life.node.leave(timeout=0.0)
        assert life.participant.log[-1] == "fenced"

    life.participant.on_prepare = leave
    life.clock.move(2.0)
    with suppress(LeadershipLost, SessionLost):
        life.turn()
    assert "epoch 2" in life.participant.log
    assert [ack.epoch for ack in Records(life.store, KEYS).acks(SCOPE)] == [1]

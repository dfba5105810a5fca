"""A member's side of barriers: which calls a participant gets, in which order, and what its acks say."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.participant import EpochWork, Outsider, Participant, Participation
from penstock.control.cluster.rules.assignment import successor
from penstock.control.cluster.rules.commands import Abort, Acquire, Command, Prepare, Publish, Rotate
from penstock.control.cluster.rules.machine import ControlAccepted
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierAck,
    BarrierKind,
    Control,
    Decision,
    Outcome,
    Seat,
    Snapshot,
)
from penstock.errors import StoreUnavailable
from penstock.store.backends import MAX_DOCUMENT
from penstock.store.memory import MemoryStore
from tests.control.cluster.support import KEYS, SCOPE, Clock, Counting, Line, cut

ANN, BEN = Seat("ann", "s1"), Seat("ben", "s2")


class Stage:
    """A participant, and a leader whose every move the test makes itself."""

    def __init__(self, seat: Seat = ANN, participant: Participant | None = None) -> None:
        self.store = MemoryStore()
        self.room, self.records = Room(self.store, KEYS), Records(self.store, KEYS)
        self.line = Line(self.store, Clock())
        self.participant = Counting(seat.member)
        self.part = Participation(
            Room(self.line, KEYS), Records(self.line, KEYS), SCOPE, seat, participant or self.participant
        )
        self.requests = 0
        self.say(Acquire("boss", "boss", 5.0))

    def say(self, command: Command) -> Control:
        control, answer = self.room.submit(command)
        assert answer == ControlAccepted(), answer
        return control

    def seat(self, *seats: Seat) -> None:
        self.say(Rotate("boss", 1, successor(self.room.read().assignment, seats, 16, 1)))

    def announce(self, kind: BarrierKind = BarrierKind.EPOCH, target: tuple[Seat, ...] = ()) -> Barrier:
        self.requests += 1
        seats = self.room.read().assignment.seats
        request = f"r{self.requests}"
        opened = self.say(Prepare("boss", 1, SCOPE, kind, seats, request, target)).scope(SCOPE).open
        assert opened is not None
        return opened

    def end(self, outcome: Outcome = Outcome.COMMIT, **fields: Any) -> None:
        """Decide the open epoch with what was acked, and say so."""
        scope = self.room.read().scope(SCOPE)
        assert scope.open is not None
        epoch = scope.open.epoch
        states = {part: state for ack in self.records.acks(SCOPE) for part, state in ack.states.items()}
        decision = Decision(
            epoch, outcome, scope.open.kind, scope.open.assignment, 1, scope.committed, states=states
        )
        self.records.decide(SCOPE, replace(decision, **fields))
        if outcome is Outcome.COMMIT:
            self.say(Publish("boss", 1, SCOPE, epoch, None))
        else:
            self.say(Abort("boss", 1, SCOPE, epoch))

    def epoch(self, kind: BarrierKind = BarrierKind.EPOCH, *target: Seat) -> None:
        self.announce(kind, target)
        self.part.step()
        self.end()

    @property
    def ack(self) -> BarrierAck:
        return next(ack for ack in self.records.acks(SCOPE) if ack.member == self.participant.member)

    @property
    def log(self) -> list[str]:
        return self.participant.log


@pytest.fixture
def stage() -> Stage:
    """With ann as the only one, before her first step."""
    stage = Stage()
    stage.seat(ANN)
    return stage


# the order of calls


def test_nothing_is_asked_before_there_is_an_assignment() -> None:
    stage = Stage()
    stage.part.step()
    assert stage.log == []


def test_work_under_an_assignment_begins_with_its_first_epoch(stage: Stage) -> None:
    """Before that, no drain would stop it."""
    stage.part.step()
    assert stage.log == []
    stage.announce()
    stage.part.step()
    assert stage.log == ["assigned 1", "epoch 1"]


def test_calls_come_in_their_order(stage: Stage) -> None:
    stage.epoch()
    stage.announce()
    stage.part.step()
    stage.end(Outcome.ABORT)
    stage.part.step()
    assert stage.log == ["assigned 1", "epoch 1", "committed 1", "epoch 2", "aborted 2"]


def test_each_epoch_is_prepared_and_answered_once(stage: Stage) -> None:
    stage.announce()
    for _ in range(5):
        stage.part.step()
    writes = [key for call, key in stage.line.calls if call == "cas"]
    assert (stage.log, len(writes)) == (["assigned 1", "epoch 1"], 1)


def test_the_ack_says_what_was_done(stage: Stage) -> None:
    stage.participant.watermark = 77
    stage.announce()
    stage.part.step()
    parts = dict.fromkeys(stage.participant.owned, "1")
    assert stage.ack == BarrierAck("ann", "s1", 1, 1, parts, "ann@1", ("ann/1",), 77)


def test_a_participant_is_told_from_where_to_go_on(stage: Stage) -> None:
    stage.announce()
    stage.part.step()
    stage.end(states={"p0": "41", "p1": "7"})
    late = Counting("ann")
    part = Participation(stage.room, stage.records, SCOPE, ANN, late)
    part.step()
    assert (late.owned["p0"], late.owned["p1"], late.owned["p2"]) == (41, 7, 0)


def test_assigned_comes_only_between_epochs(stage: Stage) -> None:
    """All that the member missed is handed on in order: the outcome, the new owners, the next epoch."""
    stage.epoch()
    stage.epoch(BarrierKind.DRAIN, ANN, BEN)
    stage.seat(ANN, BEN)
    stage.announce()
    stage.part.step()
    assert stage.log[2:] == ["committed 1", "drain 2", "committed 2", "assigned 2", "epoch 3"]
    assert (stage.ack.epoch, stage.ack.assignment) == (3, 2)


def test_who_loses_its_seat_is_told_at_once(stage: Stage) -> None:
    stage.epoch()
    stage.epoch(BarrierKind.DRAIN, BEN)
    stage.seat(BEN)
    stage.part.step()
    assert stage.log[-2:] == ["committed 2", "assigned 2"]
    assert stage.participant.owned == {}


def test_a_drain_that_was_aborted_is_no_end(stage: Stage) -> None:
    stage.epoch()
    stage.announce(BarrierKind.DRAIN, (BEN,))
    stage.part.step()
    stage.end(Outcome.ABORT)
    stage.epoch()
    assert stage.log[3:] == ["drain 2", "aborted 2", "epoch 3"]


# who is asked


def test_who_has_no_seat_is_not_asked() -> None:
    stage = Stage(BEN)
    stage.seat(ANN)
    stage.announce()
    stage.part.step()
    assert stage.log == ["assigned 1"]
    assert stage.participant.owned == {}
    assert stage.records.acks(SCOPE) == []


def test_a_seat_of_an_earlier_session_is_not_ours() -> None:
    stage = Stage(replace(ANN, session="s9"))
    stage.seat(ANN)
    stage.announce()
    stage.part.step()
    assert stage.records.acks(SCOPE) == []


def test_a_seat_with_another_capacity_is_ours(stage: Stage) -> None:
    stage.epoch()
    stage.epoch(BarrierKind.DRAIN, replace(ANN, capacity=2))
    stage.seat(replace(ANN, capacity=2))
    stage.announce()
    stage.part.step()
    assert stage.ack.epoch == 3


# refusals


def test_an_exception_is_a_refusal(stage: Stage) -> None:
    def fail(barrier: Barrier) -> None:
        raise OSError(f"no space for {barrier.epoch}" + "!" * 9999)

    stage.participant.on_prepare = fail
    stage.announce()
    stage.part.step()
    assert stage.ack.refusal is not None
    assert stage.ack.refusal.startswith("OSError: no space for 1!")
    assert len(stage.ack.refusal) <= 500
    assert (stage.ack.states, stage.ack.files) == ({}, ())
    stage.end(Outcome.ABORT)
    stage.part.step()
    assert stage.log[-1] == "aborted 1"


def test_a_participant_refuses_in_its_own_words(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.participant, "prepare", lambda barrier: EpochWork(refusal="not today"))
    stage.announce()
    stage.part.step()
    assert stage.ack.refusal == "not today"


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (EpochWork(states={"p": "x" * MAX_DOCUMENT}), "bytes"),
        (EpochWork(frontier="x" * MAX_DOCUMENT, watermark=5), "bytes"),
        (EpochWork(refusal="x" * MAX_DOCUMENT), "bytes"),
        (EpochWork(states={"p": b"raw"}), "cannot be written"),  # type: ignore[dict-item]
        (EpochWork(states=MappingProxyType({"p": "1"})), "cannot be written"),
    ],
)
def test_what_cannot_be_written_becomes_a_refusal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, work: EpochWork, why: str
) -> None:
    """Or the leader would wait for the time-out, and nobody would know why."""
    monkeypatch.setattr(stage.participant, "prepare", lambda barrier: work)
    stage.announce()
    stage.part.step()
    assert why in (stage.ack.refusal or "")
    assert stage.ack == BarrierAck("ann", "s1", 1, 1, refusal=stage.ack.refusal)
    stage.part.step()
    stage.end(Outcome.ABORT)
    stage.part.step()
    assert stage.log[-1] == "aborted 1"


# how an epoch ended


def test_the_outcome_is_known_from_the_record_when_the_control_has_moved_on(stage: Stage) -> None:
    stage.epoch()
    stage.epoch(BarrierKind.DRAIN, BEN)
    stage.seat(BEN)
    for _ in range(3):
        stage.announce()
        stage.end()
    stage.part.step()
    assert stage.log[3:] == ["drain 2", "committed 2", "assigned 2"]


def test_an_epoch_that_was_aborted_long_ago_is_aborted(stage: Stage) -> None:
    stage.announce()
    stage.part.step()
    stage.end(Outcome.ABORT)
    for _ in range(70):
        stage.announce()
        stage.end(Outcome.ABORT)
    stage.announce()
    stage.end()
    stage.part.step()
    assert stage.log[1:] == ["epoch 1", "aborted 1"]


def test_who_was_away_for_so_long_that_the_record_is_gone_keeps_nothing(stage: Stage) -> None:
    stage.epoch()
    stage.epoch(BarrierKind.DRAIN, BEN)
    stage.seat(BEN)
    stage.announce()
    stage.end()
    stage.records.prune_decisions(SCOPE, before=3, committed=3)
    stage.part.step()
    assert stage.log[3:] == ["drain 2", "fenced", "assigned 2"]
    assert stage.participant.owned == {}


def test_a_record_that_a_lost_leader_wrote_too_late_is_not_believed(stage: Stage) -> None:
    """The abort was long decided and its record pruned, when somebody wakes up and commits."""
    stage.announce()
    stage.part.step()
    stage.end(Outcome.ABORT)
    abort = stage.records.decision(SCOPE, 1)
    assert abort is not None
    stage.records.prune_decisions(SCOPE, before=2, committed=0)
    stage.records.decide(SCOPE, replace(abort, outcome=Outcome.COMMIT))
    stage.part.step()
    assert stage.log[-1] == "aborted 1"


def test_an_outcome_that_could_not_be_handed_on_is_handed_on_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(epoch: int) -> None:
        raise OSError(f"cannot keep {epoch}")

    stage.announce()
    stage.part.step()
    stage.end()
    stage.announce()
    with monkeypatch.context() as broken:
        broken.setattr(stage.participant, "committed", fail)
        with pytest.raises(OSError, match="cannot keep 1"):
            stage.part.step()
    stage.part.step()
    assert stage.log == ["assigned 1", "epoch 1", "committed 1", "epoch 2"]


def test_nobody_begins_from_nothing_because_a_record_is_gone(stage: Stage) -> None:
    """It was read so long ago that the record was pruned: only a fresh look says where to begin."""
    stage.announce()
    stage.part.step()
    stage.end()
    late = Counting("ann")
    line = Line(stage.store, Clock())
    part = Participation(Room(line, KEYS), Records(line, KEYS), SCOPE, ANN, late)

    def go_on(call: str, key: str) -> None:
        if key == KEYS.control:
            line.after = lambda call, key: None
            stage.announce()
            stage.part.step()
            stage.end()
            stage.records.prune_decisions(SCOPE, before=2, committed=2)

    line.after = go_on
    part.step()
    assert late.log == []
    part.step()
    assert late.log == ["assigned 1"]
    assert set(late.owned.values()) == {2}


# a store that does not answer


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_call_that_fails_is_made_up_for(side: str) -> None:
    """Each call of a whole life in turn, lost on its way there or on its way back."""

    def live(lost: int) -> tuple[list[str], list[BarrierAck], int]:
        stage = Stage()
        stage.seat(ANN)
        count = 0

        def lose(call: str, key: str) -> None:
            nonlocal count
            count += 1
            if count == lost:
                cut(call, key)

        setattr(stage.line, side, lose)
        acks: list[BarrierAck] = []
        for outcome in (Outcome.COMMIT, Outcome.ABORT, Outcome.COMMIT):
            stage.announce()
            _insist(stage.part)
            acks.append(stage.ack)
            stage.end(outcome)
        stage.announce(BarrierKind.DRAIN, (BEN,))
        _insist(stage.part)
        stage.end()
        stage.seat(BEN)
        _insist(stage.part)
        return stage.log, acks, count

    log, acks, calls = live(0)
    assert calls > 10
    for lost in range(1, calls + 1):
        again = live(lost)
        assert (again[0], again[1]) == (log, acks), f"with call {lost} lost"


def _insist(part: Participation) -> None:
    try:
        part.step()
    except StoreUnavailable:
        part.step()


def test_a_late_ack_does_not_hide_that_of_the_next_session(stage: Stage) -> None:
    """A process that slept wakes up and writes, while its id is long another one's."""
    newer = BarrierAck("ann", "s2", 9, 3, {"p": "9"})
    stage.records.write_ack(SCOPE, newer)
    stage.records.write_ack(SCOPE, BarrierAck("ann", "s1", 8, 2, {"p": "8"}))
    assert stage.ack == newer


# a scope that this instance does not work on


def test_an_outsider_stops_nobody_and_does_no_work() -> None:
    stage = Stage(participant=Outsider())
    stage.seat(ANN)
    stage.announce()
    stage.part.step()
    assert "does not work on it" in (stage.ack.refusal or "")
    stage.end(Outcome.ABORT)
    stage.announce(BarrierKind.DRAIN, (ANN, BEN))
    stage.part.step()
    assert stage.ack == BarrierAck("ann", "s1", 2, 1)


# owners that cannot be taken over


class Unable(Counting):
    """Fails to take over what it owns, as long as it is told to."""

    fails = True

    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        super().assigned(snapshot, committed)
        if self.fails:
            self.owned = {}
            raise OSError("a file is missing")


@pytest.fixture
def unable() -> Stage:
    stage = Stage(participant=Unable("ann"))
    stage.seat(ANN)
    return stage


def participant(stage: Stage) -> Unable:
    found = stage.part._participant
    assert isinstance(found, Unable)
    return found


def test_why_owners_cannot_be_taken_over_is_the_answer_to_the_epoch(unable: Stage) -> None:
    unable.announce()
    for _ in range(3):
        unable.part.step()
    assert unable.ack == BarrierAck("ann", "s1", 1, 1, refusal="OSError: a file is missing")
    assert participant(unable).log == ["assigned 1"]


def test_owners_are_taken_over_again_with_the_next_epoch(unable: Stage) -> None:
    unable.announce()
    unable.part.step()
    unable.end(Outcome.ABORT)
    for _ in range(3):
        unable.part.step()
    assert participant(unable).log == ["assigned 1"]
    participant(unable).fails = False
    unable.announce()
    unable.part.step()
    assert unable.ack.refusal is None
    unable.end()
    unable.part.step()
    assert participant(unable).log == ["assigned 1", "assigned 1", "epoch 2", "committed 2"]


def test_who_could_not_take_over_does_not_keep_owners_from_changing(unable: Stage) -> None:
    unable.announce()
    unable.part.step()
    unable.end(Outcome.ABORT)
    unable.announce(BarrierKind.DRAIN, (BEN,))
    unable.part.step()
    assert unable.ack == BarrierAck("ann", "s1", 2, 1)
    unable.end()
    unable.seat(BEN)
    participant(unable).fails = False
    unable.part.step()
    assert participant(unable).log == ["assigned 1", "assigned 1", "assigned 2"]

"""What a leader tells of epochs, and of what a change of owners cost."""

from __future__ import annotations

from penstock.control.cluster.rules.model import BarrierKind, Decision, Outcome, Snapshot
from penstock.streams.views.epoch_events import EpochEvents
from penstock.streams.views.events import StreamEvent
from tests.streams.owners import moving
from tests.streams.support import Crew, Scripted

OLD, NEW = ("ann", "ben"), ("ann",)


class Told:
    """A listener to the epochs of ann, and a crew with one part that she gets when ben is gone."""

    def __init__(self) -> None:
        source = Scripted(**{moving("ben", "ann", old=OLD, new=NEW): [1]})
        source.endless = set(source.rows)
        self.crew = Crew(*OLD, s=source)
        self.events: list[StreamEvent] = []
        self.snapshot: Snapshot | None = None
        self.begin()

    def begin(self) -> None:
        """Ann begins to lead."""
        self.epoch_events = EpochEvents(
            self.crew.workers["ann"],
            lambda: self.snapshot or self.crew.snapshot,
            self.events.append,
            self.crew.clock,
        )

    def epoch(self, seconds: float = 1.0) -> None:
        self.crew.clock.now += seconds
        self.epoch_events.decided(self.crew.epoch())

    def unheard(self, seconds: float = 1.0) -> None:
        """An epoch under another leader."""
        self.crew.clock.now += seconds
        self.crew.epoch()

    def lose_ben(self) -> None:
        self.crew.die("ben")
        self.crew.clock.now += 6.0
        self.epoch_events.decided(self.crew.move("ann"))

    @property
    def moves(self) -> list[tuple[int, float, float]]:
        """Version, share of parts and pause of each move."""
        found = [event.values for event in self.events if event.kind == "rescaled"]
        return [(each["version"], each["moved"], each["pause"]) for each in found]


def test_the_first_owners_are_no_move() -> None:
    told = Told()
    told.epoch()
    told.epoch()
    assert told.moves == []
    assert [event.kind for event in told.events] == ["epoch", "epoch"]


def test_a_move_is_told_with_its_pause_and_what_moved() -> None:
    told = Told()
    told.epoch()
    told.epoch()
    told.lose_ben()
    told.epoch(2.0)
    told.epoch()
    assert told.moves == [(2, 1.0, 8.0)]


def test_a_new_leader_tells_the_move_that_made_it_one() -> None:
    told = Told()
    told.unheard()
    told.unheard()
    told.lose_ben()
    told.begin()
    told.epoch(2.0)
    told.epoch()
    assert told.moves == [(2, 1.0, 8.0)]


def test_owners_of_another_version_are_not_taken_for_those_of_the_epoch() -> None:
    told = Told()
    told.epoch()
    told.snapshot = told.crew.snapshot
    told.lose_ben()
    told.epoch(2.0)
    assert told.moves == []
    told.snapshot = None
    told.epoch()
    told.epoch()
    assert told.moves == [(2, 1.0, 9.0)]


def test_a_reason_is_told_once_until_an_epoch_is_committed() -> None:
    told = Told()
    for epoch, reason in enumerate(("full", "full", "cut", "full")):
        told.epoch_events.decided(Decision(epoch, Outcome.ABORT, BarrierKind.EPOCH, 1, 1, 0, reason=reason))
    told.epoch()
    told.epoch_events.decided(Decision(9, Outcome.ABORT, BarrierKind.EPOCH, 1, 1, 0, reason="full"))
    assert [event.kind for event in told.events] == ["problem", "problem", "problem", "epoch", "problem"]

"""When the next epoch of a stream is due."""

from __future__ import annotations

import pytest

from penstock.control.cluster.rules.model import BarrierKind, Decision, Outcome
from penstock.streams.ingest.pacing import StreamRhythm
from penstock.streams.model import Brought, Pointer

EVERY = 0.5


class Leader:
    """A rhythm, and what it was told and asked."""

    def __init__(self, every: float = EVERY) -> None:
        self.wanted = True
        self.heard: list[int] = []
        self.rhythm = StreamRhythm(
            every, 1000, 10_000, lambda: self.wanted, lambda d: self.heard.append(d.epoch)
        )
        self._epoch = 0

    def after(
        self,
        outcome: Outcome = Outcome.COMMIT,
        kind: BarrierKind = BarrierKind.EPOCH,
        seconds: float = 0.0,
        *brought: Brought,
    ) -> float | None:
        """What is due after one more decision."""
        self._epoch += 1
        files = tuple(each.encode() for each in brought)
        decision = Decision(self._epoch, outcome, kind, 1, 1, self._epoch - 1, files=files, seconds=seconds)
        return self.rhythm(decision)


def brought(rows: int = 0, size: int = 0) -> Brought:
    return Brought("ann", Pointer("portion", ""), rows, size)


def test_epochs_come_as_often_as_configured() -> None:
    assert Leader().after() == EVERY


def test_an_epoch_that_took_long_makes_the_next_one_no_later() -> None:
    leader = Leader()
    assert leader.after(seconds=0.2) == pytest.approx(EVERY - 0.2)
    assert leader.after(seconds=3.0) == 0.0


def test_a_leader_that_cannot_begin_an_epoch_does_not_try_without_a_pause() -> None:
    assert Leader().rhythm(None) == EVERY


@pytest.mark.parametrize(
    ("each", "pause"),
    [
        ([brought(rows=250)], 0.0),
        ([brought(size=2500)], 0.0),
        ([brought(rows=249, size=2499)], EVERY),
        ([brought(rows=200), brought(rows=200)], EVERY),
        ([brought(rows=1), brought(rows=900)], 0.0),
    ],
)
def test_the_next_epoch_comes_at_once_where_somebody_brought_plenty(
    each: list[Brought], pause: float
) -> None:
    assert Leader().after(Outcome.COMMIT, BarrierKind.EPOCH, 0.0, *each) == pause


def test_the_next_epoch_comes_at_once_after_owners_stood_still() -> None:
    assert Leader().after(kind=BarrierKind.DRAIN) == 0.0


def test_failures_make_epochs_rarer_and_a_success_ends_that() -> None:
    leader = Leader()
    assert [leader.after(Outcome.ABORT) for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    assert leader.after() == EVERY
    assert leader.after(Outcome.ABORT) == 1.0


def test_a_drain_that_fails_counts_as_a_failure() -> None:
    assert Leader().after(Outcome.ABORT, BarrierKind.DRAIN) == 1.0


def test_no_epoch_is_due_while_none_is_wanted() -> None:
    leader = Leader()
    leader.wanted = False
    assert leader.rhythm(None) is None
    assert leader.after() is None
    leader.wanted = True
    assert leader.rhythm(Decision(1, Outcome.COMMIT, BarrierKind.EPOCH, 1, 1, 0)) == EVERY


def test_each_decision_is_told_once_however_often_it_is_asked() -> None:
    leader = Leader()
    leader.rhythm(None)
    decision = Decision(7, Outcome.ABORT, BarrierKind.EPOCH, 1, 1, 6)
    assert [leader.rhythm(decision) for _ in range(3)] == [1.0, 1.0, 1.0]
    leader.wanted = False
    leader.rhythm(Decision(8, Outcome.COMMIT, BarrierKind.EPOCH, 1, 1, 6))
    assert leader.heard == [7, 8]

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.control.cluster.rules.model import BarrierKind, Decision, Outcome, Seat, Snapshot
from penstock.sources.base import PartName
from penstock.streams.model import Brought, PartState, Pointer
from penstock.streams.views.views import StreamFacts, StreamState, judge, moved, pause, speed
from tests.streams.log.support import NOON


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (StreamFacts("running", 0, False, 9, 0, False), StreamState.STOPPED),
        (StreamFacts("running", 0, True, 9, 0, False), StreamState.STARTING),
        (StreamFacts("running", 2, True, 0, 0, False), StreamState.STARTING),
        (StreamFacts("running", 2, True, 9, 3, False), StreamState.RUNNING),
        (StreamFacts("running", 2, True, 9, 10, False), StreamState.FAILING),
        (StreamFacts("suspended", 2, True, 9, 10, False), StreamState.SUSPENDED),
        (StreamFacts("stopped", 2, True, 9, 0, False), StreamState.STOPPING),
        (StreamFacts("stopped", 0, True, 9, 0, False), StreamState.STOPPED),
        (StreamFacts("stopped", 0, False, 9, 0, True), StreamState.ENDED),
    ],
)
def test_the_state_of_a_stream(facts: StreamFacts, state: StreamState) -> None:
    assert judge(facts) is state


def decision(number: int, second: float, *, version: int = 1, rows: int = 0, **other: Any) -> Decision:
    at = (NOON + timedelta(seconds=second)).isoformat()
    brought = Brought("ann", Pointer("x", "y"), rows, 1).encode()
    given: dict[str, Any] = {"outcome": Outcome.COMMIT, "kind": BarrierKind.EPOCH, **other}
    return Decision(
        number, assignment=version, token=1, previous=number - 1, files=(brought,), at=at, **given
    )


def test_speed_counts_empty_epochs_and_no_aborted_ones() -> None:
    made = [decision(1, 0, rows=50), decision(2, 1, rows=30), decision(3, 4)]
    assert speed(made) == 7.5
    assert speed([*made, decision(4, 9, rows=99, outcome=Outcome.ABORT)]) == 7.5
    assert speed(made[:1]) is None
    assert speed([]) is None


def test_the_pause_of_a_rescale_lies_between_two_ordinary_commits() -> None:
    drain = decision(2, 1.2, kind=BarrierKind.DRAIN)
    made = [decision(1, 1), drain, decision(3, 1.75, version=2), decision(4, 9, version=2)]
    assert pause(made, 2) == 0.75
    assert pause(made[1:], 2) is None
    assert pause(made[:2], 2) is None


def test_the_share_that_moved_is_one_of_parts() -> None:
    parts = {PartName("numbers", f"p{n}"): PartState() for n in range(300)}
    one = Snapshot(1, 1, (Seat("ann", "1"),), (0,))
    two = Snapshot(2, 1, (Seat("ann", "1"), Seat("bob", "2")), (0,))
    assert moved(one, one, parts) == 0.0
    share = moved(one, two, parts)
    assert share is not None and 0.35 < share < 0.65
    assert moved(None, two, parts) is None
    assert moved(one, two, {}) is None

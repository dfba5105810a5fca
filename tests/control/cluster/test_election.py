"""Who leads: never two at once, however the clocks of two machines differ within the margin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.cluster.candidate import Candidate
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.rules.election import MARGIN, Leadership, Sighting, leadership, see
from penstock.control.cluster.rules.model import Lease
from penstock.errors import LeadershipLost, StoreUnavailable
from penstock.store.memory import MemoryStore
from tests.control.cluster.support import CONFIG, KEYS, Clock, Line, cut

TTL, RENEW = CONFIG.lease_ttl, CONFIG.renew_every
LEASE = Lease("a", "ann", token=2, sequence=7, ttl=TTL)

# what is seen from outside


@pytest.mark.parametrize(("now", "expired"), [(0.0, False), (4.999, False), (5.0, True), (5.001, True)])
def test_a_lease_expires_when_its_time_has_come(now: float, expired: bool) -> None:
    sighting = Sighting(LEASE, 0.0)
    assert sighting.expires == 5.0
    assert sighting.expired(now) is expired
    assert sighting.free(now) is expired


def test_a_lease_without_owner_is_free_at_once() -> None:
    assert Sighting(replace(LEASE, owner=None), 0.0).free(0.0)
    assert not Sighting(replace(LEASE, owner=None), 0.0).expired(0.0)


def test_the_time_of_an_unchanged_lease_runs_on() -> None:
    first = see(None, LEASE, 3.0)
    assert first == Sighting(LEASE, 3.0)
    assert see(first, LEASE, 6.0) is first


@pytest.mark.parametrize("change", [{"sequence": 8}, {"token": 3, "sequence": 8}, {"token": 1}])
def test_the_time_of_a_changed_lease_begins_anew(change: dict[str, int]) -> None:
    assert see(Sighting(LEASE, 3.0), replace(LEASE, **change), 6.0).since == 6.0  # type: ignore[arg-type]


def test_the_watcher_uses_the_ttl_of_the_lease_not_its_own() -> None:
    assert see(None, replace(LEASE, ttl=60.0), 1.0).expires == 61.0


# what is held inside


def test_leadership_ends_a_margin_before_the_lease() -> None:
    held = leadership(LEASE, sent=10.0)
    assert held == Leadership("a", 2, 10.0 + TTL * (1 - MARGIN))
    assert held.holds(held.until - 0.001)
    assert not held.holds(held.until)


def test_nobody_holds_a_lease_that_was_given_up() -> None:
    with pytest.raises(ValueError, match="nobody"):
        leadership(replace(LEASE, owner=None), 0.0)


# candidates


class Runner:
    """A candidate on a machine of its own: a clock of its own rate, and a line to the store."""

    def __init__(
        self, name: str, store: MemoryStore, world: Callable[[], float], rate: float, offset: float
    ) -> None:
        self.name = name
        self.line = Line(store, Clock())
        self.clock: Callable[[], float] = lambda: offset + rate * world()
        self.candidate = Candidate(Room(self.line, KEYS), name, f"{name}#1", CONFIG, self.clock)
        self.due = -math.inf

    def step(self) -> None:
        """What a node does: step when it is due, and try again shortly if the store does not answer."""
        if self.clock() < self.due:
            return
        try:
            wait = self.candidate.step()
        except StoreUnavailable:
            wait = 0.2
        self.due = self.clock() + min(wait, 0.5)


class Race:
    """Two candidates on one store; time goes in steps, and both are asked each time whether they lead."""

    def __init__(self, rates: tuple[float, float] = (1.0, 1.0), offset: float = 0.0) -> None:
        self.clock = Clock(0.0)
        self.store = MemoryStore(self.clock)
        self.ann = Runner("ann", self.store, self.clock, rates[0], 0.0)
        self.ben = Runner("ben", self.store, self.clock, rates[1], offset)
        self.both = 0
        self.ann.step()
        self.ben.step()

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Go on for ``seconds`` or ``until`` something is so; the seconds that this took."""
        began = self.clock.now
        while self.clock.now < began + seconds and not until():
            self.clock.move(0.05)
            for runner in (self.ann, self.ben):
                runner.step()
                self.both += all(r.candidate.held is not None for r in (self.ann, self.ben))
        return self.clock.now - began

    @property
    def leader(self) -> str | None:
        return next((r.name for r in (self.ann, self.ben) if r.candidate.held is not None), None)

    @property
    def lease(self) -> Lease:
        return Room(self.store, KEYS).read().lease


def test_the_first_one_leads_and_goes_on_leading() -> None:
    race = Race()
    race.run(60)
    assert (race.leader, race.both) == ("ann", 0)
    assert race.lease.token == 1
    renewals = 60 / RENEW
    assert renewals * 0.8 < race.lease.sequence <= renewals + 2


def test_the_loser_learns_the_winner() -> None:
    race = Race()
    assert race.ben.candidate.control.lease.member == "ann"
    race.ann.line.before = cut
    race.run(20, lambda: race.leader == "ben")
    race.ann.line.before = lambda call, key: None
    race.run(1)
    assert race.ann.candidate.control.lease.member == "ben"
    assert race.ann.candidate.held is None


def test_of_two_who_see_a_free_lease_one_gets_it_and_the_other_learns_that() -> None:
    race = Race()
    race.ann.candidate.resign()
    race.ann.candidate.step()
    third = Runner("cyd", race.store, race.clock, 1.0, 0.0)

    def interfere(call: str, key: str) -> None:
        if call == "cas":
            race.ben.line.before = lambda call, key: None
            third.candidate.step()

    race.ben.line.before = interfere
    race.ben.candidate.step()
    assert third.candidate.held is not None
    assert race.ben.candidate.held is None
    assert race.ben.candidate.control.lease.member == "cyd"
    assert race.lease.token == 2


def test_a_leader_that_resigns_is_followed_at_once() -> None:
    race = Race()
    race.ann.candidate.resign()
    with pytest.raises(LeadershipLost):
        race.ann.candidate.current()
    assert race.run(TTL, lambda: race.leader == "ben") <= 1.0
    assert (race.lease.token, race.both) == (2, 0)


def test_who_does_not_stand_any_more_never_leads_again_and_does_not_hurry() -> None:
    race = Race()
    race.ann.candidate.resign()
    race.ben.line.before = cut
    for _ in range(20):
        race.clock.move(TTL)
        waits = race.ann.candidate.step()
    assert race.lease.owner is None
    assert race.ann.candidate.held is None
    assert waits > 0, "it would ask the store without a pause"


def test_a_takeover_whose_answer_was_lost_is_noticed() -> None:
    race = Race()
    race.ann.candidate.resign()
    race.ann.candidate.step()
    race.ben.line.after = lambda call, key: cut(call, key) if call == "cas" else None
    with pytest.raises(StoreUnavailable):
        race.ben.candidate.step()
    assert race.ben.candidate.held is None
    race.ben.line.after = lambda call, key: None
    race.ben.candidate.step()
    assert race.ben.candidate.current().token == race.lease.token == 2


def test_a_leader_that_was_away_takes_its_lease_up_again_if_nobody_took_it() -> None:
    race = Race()
    race.clock.move(100 * TTL)
    assert race.ann.candidate.held is None
    race.ann.candidate.step()
    assert race.ann.candidate.current().token == 1


def test_to_be_asked_does_not_renew() -> None:
    race = Race()
    race.clock.move(TTL * (1 - MARGIN))
    with pytest.raises(LeadershipLost) as caught:
        race.ann.candidate.current()
    assert caught.value.left == "nothing was written"


# a leader that is cut off

LOSSES = {
    "nothing comes through": lambda line: setattr(line, "before", cut),
    "no answer comes back": lambda line: setattr(line, "after", cut),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("moment", [0.0, 0.5, 1.95, 2.0, 2.05, 3.7])
@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.9, 1.1), (1.1, 0.9), (0.82, 1.0), (1.0, 1.2)])
def test_a_leader_that_cannot_renew_stops_before_its_lease_can_be_taken(
    rates: tuple[float, float], moment: float, loss: str
) -> None:
    race = Race(rates, offset=1e6)
    race.run(moment)
    LOSSES[loss](race.ann.line)
    waited = race.run(4 * TTL, lambda: race.leader == "ben")
    assert race.leader == "ben", "nobody took over"
    assert race.both == 0, "two led at once"
    if loss == "nothing comes through":
        assert waited <= 1.5 * TTL / min(rates)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    slow=st.floats(0.5, 2.0),
    ratio=st.floats(0.8, 1.2),
    moment=st.floats(0, 6),
    offset=st.floats(-1e6, 1e6),
)
def test_never_two_at_once_within_the_margin(slow: float, ratio: float, moment: float, offset: float) -> None:
    race = Race((slow, slow * ratio), offset)
    race.run(moment)
    race.ann.line.after = cut
    race.run(6 * TTL / slow, lambda: race.leader == "ben")
    assert (race.leader, race.both) == ("ben", 0)


def test_beyond_the_margin_two_may_believe_to_lead() -> None:
    """What the margin is for; the tokens keep the store right even then."""
    race = Race((0.6, 1.0))
    race.ann.line.before = cut
    race.run(4 * TTL)
    assert race.both > 0
    assert race.lease.token == 2

"""Two leaders that both believe to lead, in every order of their calls: one truth comes out.

The first one's own clock stands still, as that of a process that was stopped: nothing but the store and its
tokens holds it back.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import combinations

import pytest

from penstock.control.cluster.rules.model import BarrierKind, Decision, Outcome
from penstock.errors import LeadershipLost
from tests.control.cluster.support import KEYS, PARTS, SCOPE, Clock, Instance, World

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


class Turns:
    """Lets two threads make their store calls in a given order; when it has run out, "a" goes first."""

    def __init__(self, order: str) -> None:
        self._order = deque(order)
        self._changed = threading.Condition()
        self._over: set[str] = set()
        self.begun = threading.Event()

    def _next(self) -> str:
        while self._order and self._order[0] in self._over:
            self._order.popleft()
        if self._order:
            return self._order[0]
        return "b" if "a" in self._over else "a"

    def begin(self, name: str) -> Callable[[str, str], None]:
        """For `Line.before`: wait until it is the turn of ``name``."""

        def wait(call: str, key: str) -> None:
            self.begun.set()
            with self._changed:
                assert self._changed.wait_for(lambda: self._next() == name, 30), "the test hangs"

        return wait

    def end(self, call: str, key: str) -> None:
        """For `Line.after`: the turn is over."""
        with self._changed:
            if self._order:
                self._order.popleft()
            self._changed.notify_all()

    def over(self, name: str) -> None:
        """``name`` makes no more calls."""
        with self._changed:
            self._over.add(name)
            self._changed.notify_all()


def orders(a: int, b: int) -> Iterator[str]:
    """Every way to put ``a`` calls of the one and ``b`` of the other one after the other."""
    for places in combinations(range(a + b), a):
        yield "".join("a" if place in places else "b" for place in range(a + b))


class Contest:
    """``a`` is about to make a certain call when ``b`` finds its lease expired."""

    def __init__(self) -> None:
        self.world = World()
        self.a = self.world.join("a", clock=Clock())
        self.b = self.world.join("b")
        self.a.leads().epoch()
        self.b.candidate.step()
        self.error: LeadershipLost | None = None

    def run(self, order: str, work: Callable[[], object], held_up: Callable[[str, str], bool]) -> None:
        turns = Turns(order)

        def watch_for_it(call: str, key: str) -> None:
            if held_up(call, key):
                self.a.line.before, self.a.line.after = turns.begin("a"), turns.end
                self.a.line.before(call, key)

        def lead_on() -> None:
            try:
                work()
            except LeadershipLost as error:
                self.error = error
            finally:
                turns.over("a")

        self.a.line.before = watch_for_it
        thread = threading.Thread(target=lead_on, daemon=True)
        thread.start()
        assert turns.begun.wait(30), "a never came to the call"
        self.world.pass_time(self.world.config.lease_ttl)
        self.b.line.before, self.b.line.after = turns.begin("b"), turns.end
        self.b.leads().duties.step()
        turns.over("b")
        thread.join(30)
        assert not thread.is_alive()
        for line in (self.a.line, self.b.line):
            line.before = line.after = lambda call, key: None

    # where ``a`` is held up

    def is_announcing(self, call: str, key: str) -> bool:
        return (call, key) == ("cas", KEYS.control)

    def is_deciding(self, call: str, key: str) -> bool:
        return (call, key) == ("cas", KEYS.epoch(SCOPE, 2))

    def has_decided(self, call: str, key: str) -> bool:
        return key == KEYS.control and 2 in self.world.decisions

    def is_rotating(self, call: str, key: str) -> bool:
        """It rotates for c; meanwhile c is gone, and d has come."""
        if (call, key) != ("cas", KEYS.control) or self.world.scope.drained is None:
            return False
        self.world.instances[-1].die()
        self.world.join("d")
        return True

    def settle(self) -> None:
        """What has to be true afterwards, whatever the order was: one record, one truth, and it goes on."""
        world = self.world
        world.take_part()
        assert world.control.lease.owner == self.b.candidate.owner
        assert world.scope.open is None
        self.assert_told()
        self.b.epoch()
        self.assert_told()
        world.assert_consistent()

    def assert_told(self) -> None:
        """Records, control and members agree on how each epoch ended."""
        self.world.take_part()
        outcomes = {epoch: decision.outcome for epoch, decision in self.world.decisions.items()}
        assert tuple(e for e, outcome in outcomes.items() if outcome is ABORT) == self.world.scope.aborted
        assert max(e for e, outcome in outcomes.items() if outcome is COMMIT) == self.world.scope.committed
        for instance in (self.a, self.b):
            self.assert_learnt(instance, outcomes)

    def assert_learnt(self, instance: Instance, outcomes: dict[int, Outcome]) -> None:
        learnt = [line.split() for line in instance.participant.log if line.startswith(("comm", "abor"))]
        for word, epoch in learnt:
            assert word == ("committed" if outcomes[int(epoch)] is COMMIT else "aborted")
        assert len(learnt) == len({epoch for _, epoch in learnt})


def test_only_one_decides_an_epoch() -> None:
    """``a`` is held up right before its record, then at every call up to its last."""
    ended: Counter[Outcome] = Counter()
    for order in orders(4, 7):
        contest = Contest()
        contest.run(order, contest.a.epoch, contest.is_deciding)
        contest.settle()
        decision: Decision = contest.world.decisions[2]
        ended[decision.outcome] += 1
        assert decision.token == 1
        if contest.error is None:
            assert decision.outcome is COMMIT
    assert set(ended) == {COMMIT, ABORT}, "not every order was tried"


def test_only_one_publishes() -> None:
    """``a`` has written its record and is held up right before it says so."""
    published: Counter[bool] = Counter()
    for order in orders(3, 7):
        contest = Contest()
        contest.run(order, contest.a.epoch, contest.has_decided)
        contest.settle()
        assert contest.world.decisions[2].outcome is COMMIT
        published[contest.error is None] += 1
    assert set(published) == {True, False}, "not every order was tried"


def test_only_one_announces() -> None:
    for order in orders(3, 6):
        contest = Contest()
        contest.run(order, contest.a.epoch, contest.is_announcing)
        contest.settle()


def test_only_one_rotates() -> None:
    won: Counter[str] = Counter()
    for order in orders(3, 7):
        contest = Contest()
        world = contest.world
        world.join("c")
        contest.run(order, contest.a.duties.step, contest.is_rotating)
        contest.b.duties.step()
        world.take_part()
        history = {snapshot.version: snapshot for snapshot in world.assignments}
        current = world.control.assignment
        assert sorted(history) == list(range(1, current.version + 1))
        assert history[current.version] == current
        assert [seat.member for seat in current.seats] == ["a", "b", "d"]
        assert [history[v].token for v in sorted(history)] == sorted(h.token for h in history.values())
        won["a" if any(s.member == "c" for s in history[2].seats) else "b"] += 1
        contest.settle()
    assert set(won) == {"a", "b"}, "not every order was tried"


@pytest.mark.parametrize("resolved", [True, False])
def test_a_leader_that_wakes_up_much_later_changes_nothing(resolved: bool) -> None:
    """Its record comes when the epoch is long over, and even forgotten."""
    contest = Contest()
    world, a, b = contest.world, contest.a, contest.b

    def sleep(call: str, key: str) -> None:
        if (call, key) != ("cas", KEYS.epoch(SCOPE, 2)):
            return
        a.line.before = lambda call, key: None
        world.take_over(b).duties.step()
        for _ in range(40 if resolved else 1):
            b.epoch()
            world.renew()

    a.line.before = sleep
    with pytest.raises(LeadershipLost):
        a.epoch()
    world.take_part()
    assert world.scope.committed == (42 if resolved else 3)
    assert 2 in world.scope.aborted
    assert "committed 2" not in a.participant.log + b.participant.log
    b.epoch()
    assert world.counts == dict.fromkeys(PARTS, world.scope.committed - 1)
    assert world.decisions[world.scope.committed].kind is BarrierKind.EPOCH

"""The control document against an oracle that thinks in histories, and mutants that it must catch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.control.cluster.documents.codec import CONTROL
from penstock.control.cluster.rules import machine
from penstock.control.cluster.rules.assignment import successor
from penstock.control.cluster.rules.commands import Abort, Acquire, Command, Prepare, Publish, Resign, Rotate
from penstock.control.cluster.rules.machine import Answer, ControlAccepted, ControlRefused, Why
from penstock.control.cluster.rules.model import BarrierKind, Control, Scope, Seat, Snapshot

OWNERS = ("a", "b", "c")
SCOPES = ("x", "y")
SEATS = tuple(Seat(name, f"s-{name}") for name in ("ann", "ben", "cyd"))
_owner = st.sampled_from(OWNERS)
_who = st.sampled_from(["leader"] * 8 + ["former", "other"])
_scope = st.sampled_from(SCOPES)
_seats = st.sets(st.sampled_from(SEATS), min_size=1).map(lambda seats: tuple(sorted(seats)))


_is_led = precondition(lambda self: self.leader[0] is not None)


class History:
    """What the oracle knows of a scope: every number that was ever announced, and what became of it."""

    def __init__(self) -> None:
        self.open: int | None = None
        self.kind = BarrierKind.EPOCH
        self.target: tuple[Seat, ...] = ()
        self.ended: dict[int, str] = {}
        self.working = False
        self.stopped_for: tuple[Seat, ...] | None = None
        self.watermark: int | None = None


class Clusters(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.control = Control()
        self.terms: list[tuple[str, int]] = []
        self.leader: tuple[str | None, int] = (None, 0)
        self.sequence = 0
        self.version = 0
        self.seats: tuple[Seat, ...] = ()
        self.histories = {name: History() for name in SCOPES}
        self.requests = 0

    def ask(self, command: Command) -> Answer:
        """Submit a command; refusals and repetitions change nothing, and all survives the store."""
        before = self.control
        after, answer = machine.apply(before, command)
        if isinstance(answer, ControlRefused):
            assert after is before, "a refused command changed something"
        elif not isinstance(command, Acquire):
            again, repeated = machine.apply(after, command)
            assert (repeated, again) == (answer, after), "a repeated command changed something"
        self.control = CONTROL.decode("k", CONTROL.encode(after))
        assert self.control == after
        return answer

    def lead(self, command: Command, *, possible: bool) -> bool:
        """Submit a leader's command: it is heard if it comes from the leader, and if it is possible."""
        assert not isinstance(command, Acquire)
        rightful = self.leader == (command.owner, command.token)
        answer = self.ask(command)
        if not rightful:
            assert answer == ControlRefused(Why.STALE), "somebody else was heard"
            return False
        assert isinstance(answer, ControlAccepted) == possible, f"{command}: {answer}"
        return possible

    def speaker(self, who: str) -> tuple[str, int]:
        """Owner and token of a command: the leader's, those of an earlier term, or nobody's."""
        owner, token = self.leader
        if who == "former" and self.terms:
            return self.terms[len(self.terms) // 2]
        return ("nobody" if who == "other" else owner or "nobody"), token

    @initialize(owner=_owner, goal=_seats)
    def begin(self, owner: str, goal: tuple[Seat, ...]) -> None:
        self.acquire(owner, "never")
        self.try_rotate("leader", goal, 1)

    # the lease

    @rule(owner=_owner, seen=st.sampled_from(["now", "before", "never"]))
    def acquire(self, owner: str, seen: str) -> None:
        holder, token = self.leader
        lease = self.control.lease
        known = {"now": (lease.token, lease.sequence), "before": (lease.token, lease.sequence - 1)}
        answer = self.ask(Acquire(owner, owner, 5.0, known.get(seen)))
        free = holder in (None, owner) or seen == "now"
        assert isinstance(answer, ControlAccepted) == free, "the lease was taken from its holder"
        if free:
            self.sequence += 1
            if holder != owner:
                self.terms.append((owner, token + 1))
                self.leader = self.terms[-1]

    @_is_led
    @rule(who=st.sampled_from(["leader", "former", "former", "other"]))
    def resign(self, who: str) -> None:
        owner, token = self.speaker(who)
        if self.lead(Resign(owner, token), possible=True):
            self.sequence += 1
            self.leader = (None, token)

    @precondition(lambda self: self.leader[0] is None)
    @rule(scope=_scope)
    def speak_while_nobody_leads(self, scope: str) -> None:
        owner, token = self.speaker("former")
        for command in (Abort(owner, token, scope, 1), Publish(owner, token, scope, 1, None)):
            assert self.ask(command) == ControlRefused(Why.STALE), "somebody else was heard"

    # epochs

    def request(self) -> str:
        self.requests += 1
        return f"r{self.requests}"

    @_is_led
    @rule(who=_who, scope=_scope, required=st.one_of(*[st.none()] * 4, _seats))
    def announce(self, who: str, scope: str, required: tuple[Seat, ...] | None) -> None:
        history = self.histories[scope]
        required = self.seats if required is None else required
        command = Prepare(*self.speaker(who), scope, BarrierKind.EPOCH, required, self.request())
        if self.lead(command, possible=history.open is None and bool(required) and required == self.seats):
            self.announced(scope, BarrierKind.EPOCH, ())
            history.working, history.stopped_for = True, None

    @_is_led
    @rule(who=_who, scope=_scope, required=_seats, goal=_seats)
    def drain(self, who: str, scope: str, required: tuple[Seat, ...], goal: tuple[Seat, ...]) -> None:
        history = self.histories[scope]
        command = Prepare(*self.speaker(who), scope, BarrierKind.DRAIN, required, self.request(), goal)
        if self.lead(command, possible=history.open is None and set(required) <= set(self.seats)):
            self.announced(scope, BarrierKind.DRAIN, goal)

    def announced(self, scope: str, kind: BarrierKind, target: tuple[Seat, ...]) -> None:
        history, barrier = self.histories[scope], self.control.scope(scope).open
        assert barrier is not None
        used = [*history.ended, 0]
        assert barrier.epoch == max(used) + 1, "a number was skipped or used again"
        assert (barrier.assignment, barrier.token) == (self.version, self.leader[1])
        history.open, history.kind, history.target = barrier.epoch, kind, target

    @_is_led
    @rule(who=_who, scope=_scope, back=st.integers(0, 2), mark=st.one_of(st.none(), st.integers(0, 9)))
    def publish(self, who: str, scope: str, back: int, mark: int | None) -> None:
        history = self.histories[scope]
        epoch = max((history.open or 0, *history.ended)) - back
        last = max((e for e, how in history.ended.items() if how == "committed"), default=0)
        possible = epoch in (history.open, last)
        if self.lead(Publish(*self.speaker(who), scope, epoch, mark), possible=possible) and (
            epoch == history.open
        ):
            self.end(scope, "committed")
            history.watermark = mark if history.watermark is None else max(history.watermark, mark or 0)
            if history.kind is BarrierKind.DRAIN:
                history.stopped_for = history.target

    @_is_led
    @rule(who=_who, scope=_scope, back=st.integers(0, 2))
    def give_up(self, who: str, scope: str, back: int) -> None:
        history = self.histories[scope]
        epoch = max((history.open or 0, *history.ended)) - back
        later = any(how == "committed" for e, how in history.ended.items() if e >= epoch)
        possible = epoch > 0 and not later
        if self.lead(Abort(*self.speaker(who), scope, epoch), possible=possible) and (epoch == history.open):
            self.end(scope, "aborted")

    def end(self, scope: str, how: str) -> None:
        history = self.histories[scope]
        assert history.open is not None
        history.ended[history.open] = how
        history.open = None

    # the assignment

    @_is_led
    @rule(who=_who, goal=_seats, ahead=st.sampled_from([1, 1, 1, 0, 2]))
    def rotate(self, who: str, goal: tuple[Seat, ...], ahead: int) -> None:
        self.try_rotate(who, goal, ahead)

    @_is_led
    @rule(who=_who, scope=_scope)
    def rotate_to_what_was_drained_for(self, who: str, scope: str) -> None:
        if target := self.histories[scope].stopped_for:
            self.try_rotate(who, target, 1)

    def try_rotate(self, who: str, target: tuple[Seat, ...], ahead: int) -> None:
        owner, token = self.speaker(who)
        wanted = replace(successor(self.control.assignment, target, 4, token), version=self.version + ahead)
        same = wanted == self.control.assignment
        still = all(
            history.open is None and (not history.working or history.stopped_for == target)
            for history in self.histories.values()
        )
        if self.lead(Rotate(owner, token, wanted), possible=same or (ahead == 1 and still)) and not same:
            assert still, "owners changed while somebody worked"
            self.version, self.seats = wanted.version, target
            for history in self.histories.values():
                history.working, history.stopped_for = False, None

    # what always holds

    @invariant()
    def the_lease_is_that_of_the_leader(self) -> None:
        lease = self.control.lease
        assert (lease.owner, lease.token) == self.leader
        assert lease.sequence == self.sequence, "not one step for each write of the lease"
        assert [term.token for term in self.control.terms] == list(range(1, lease.token + 1))[-64:]

    @invariant()
    def the_assignment_is_the_last_that_was_accepted(self) -> None:
        assignment: Snapshot = self.control.assignment
        assert (assignment.version, assignment.seats) == (self.version, self.seats)

    @invariant()
    def scopes_stand_where_history_left_them(self) -> None:
        for name, history in self.histories.items():
            scope: Scope = self.control.scope(name)
            committed = [epoch for epoch, how in history.ended.items() if how == "committed"]
            aborted = [epoch for epoch, how in history.ended.items() if how == "aborted"]
            assert scope.committed == max(committed, default=0), "not the last committed epoch"
            assert committed == sorted(committed)
            assert (scope.open and scope.open.epoch) == history.open
            assert scope.watermark == history.watermark
            assert list(scope.aborted) == aborted[-64:]


PROFILE = settings(
    max_examples=120,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

TestClusters = Clusters.TestCase
TestClusters.settings = PROFILE


def _reuse(control: Control, command: Abort) -> machine.Result:
    after, answer = _abort(control, command)
    scope = after.scope(command.scope)
    if after is not control and scope.open is None:
        after = after.with_scope(command.scope, replace(scope, next=command.epoch))
    return after, answer


_abort = machine._abort
MUTANTS = {
    "no token check": ("leads", lambda lease, command: lease.owner == command.owner, "somebody else"),
    "no owner check": ("leads", lambda lease, command: lease.token == command.token, "somebody else"),
    "no drain": ("stands_still", lambda scope, version, target: True, "Rotate"),
    "numbers used again": ("_abort", _reuse, "used again|repeated"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_machine_without_the_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, mutant, message = MUTANTS[name]
    monkeypatch.setattr(machine, function, mutant)
    with pytest.raises(AssertionError, match=message):
        run_state_machine_as_test(
            Clusters, settings=settings(PROFILE, phases=[Phase.generate], report_multiple_bugs=False)
        )

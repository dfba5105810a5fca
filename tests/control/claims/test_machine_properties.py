"""The claim machine against an oracle that thinks in rows, and mutants that it must catch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.control.claims import commands as c
from penstock.control.claims import machine
from penstock.control.claims.codec import decode, encode
from penstock.control.claims.model import (
    Accepted,
    Alive,
    Answer,
    CheckpointRef,
    Grant,
    Granted,
    PartitionRecord,
    PartitionState,
    Refused,
    Shard,
)
from penstock.core.ranges import Range

ROWS, GRID, LIMIT = 60, 10, 3
_index = st.integers(0, 10_000)


class Held:
    """A grant as the oracle sees it: held until something ends it."""

    def __init__(self, grant: Grant, session: str) -> None:
        self.grant = grant
        self.session = session
        self.over = False

    @property
    def args(self) -> tuple[Range, int, str]:
        return self.grant.range, self.grant.token, self.session


class Claims(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard(Range(0, ROWS), GRID)
        self.alive: list[str] = ["s0", "s1"]
        self.sessions = 2
        self.held: list[Held] = []
        self.tokens = [0] * ROWS
        self.completed: list[Held | None] = [None] * ROWS
        self.recent: list[tuple[c.Command, Answer]] = []
        self.requests = 0

    def ask(self, command: c.Command) -> Answer:
        before = self.shard
        after, answer = machine.apply(before, command, self.alive.__contains__)
        if isinstance(answer, Refused):
            assert after is before
        self.shard = decode(encode(after))
        assert self.shard == after
        self.recent = [*self.recent, (command, answer)][-10:]
        return answer

    def request(self) -> str:
        self.requests += 1
        return f"r{self.requests}"

    def grant(self, answer: Answer, session: str) -> None:
        assert isinstance(answer, Granted)
        for grant in answer.grants:
            for other in self.held:
                if not other.over and other.grant.range.overlaps(grant.range):
                    assert other.session not in self.alive, "taken from a living owner"
                    other.over = True
            for row in range(grant.range.begin, grant.range.end):
                assert grant.token > self.tokens[row], "a token did not grow"
                assert self.completed[row] is None, "a completed row was granted"
                self.tokens[row] = grant.token
            self.held.append(Held(grant, session))

    def rightful(self, held: Held) -> bool:
        return not held.over and held.session in self.alive

    @rule()
    def open_session(self) -> None:
        self.alive.append(f"s{self.sessions}")
        self.sessions += 1

    @rule(i=_index)
    def end_session(self, i: int) -> None:
        if len(self.alive) > 1:
            self.alive.pop(i % len(self.alive))

    @rule(i=_index, count=st.integers(1, 3))
    def claim(self, i: int, count: int) -> None:
        session = self.alive[i % len(self.alive)]
        self.grant(self.ask(c.ClaimPartitions(self.request(), session, session, count, LIMIT)), session)

    @rule(i=_index, cuts=st.lists(st.integers(0, ROWS), min_size=2, max_size=4, unique=True))
    def claim_ranges(self, i: int, cuts: list[int]) -> None:
        session = self.alive[i % len(self.alive)]
        cuts.sort()
        ranges = tuple(Range(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False))
        answer = self.ask(c.ClaimPartitions(self.request(), session, session, len(ranges), LIMIT, ranges))
        if isinstance(answer, Granted):
            assert tuple(grant.range for grant in answer.grants) == ranges
            self.grant(answer, session)

    @precondition(lambda self: self.held)
    @rule(i=_index, digest=st.sampled_from(["x", "y"]))
    def ack(self, i: int, digest: str) -> None:
        held = self.held[-1 - i % len(self.held)]
        rows = range(held.grant.range.begin, held.grant.range.end)
        replay = self.completed[rows.start] is held
        rightful = self.rightful(held)
        answer = self.ask(c.AckPartition(self.request(), *held.args, digest))
        if not replay:
            assert isinstance(answer, Accepted) == rightful, "an ack of the wrong one was taken"
        if rightful:
            held.over = True
            for row in rows:
                assert self.completed[row] is None, "a row was completed twice"
                self.completed[row] = held

    @precondition(lambda self: self.held)
    @rule(
        i=_index, what=st.sampled_from(["renew", "release", "fail", "save", "drop"]), stage=st.integers(0, 3)
    )
    def other(self, i: int, what: str, stage: int) -> None:
        held = self.held[-1 - i % len(self.held)]
        commands: dict[str, c.Held] = {
            "renew": c.Renew(self.request(), *held.args),
            "release": c.Release(self.request(), *held.args),
            "fail": c.Fail(self.request(), *held.args, "boom", LIMIT),
            "save": c.SaveCheckpoint(self.request(), *held.args, CheckpointRef(stage, held.grant.token, "d")),
            "drop": c.DropCheckpoint(self.request(), *held.args, stage),
        }
        answer = self.ask(commands[what])
        assert isinstance(answer, Accepted) == self.rightful(held), "the wrong one was heard"
        if what in ("release", "fail"):
            held.over = held.over or self.rightful(held)

    @precondition(lambda self: self.shard.records)
    @rule(i=_index, what=st.sampled_from(["poison", "retry", "force"]))
    def operate(self, i: int, what: str) -> None:
        record = self.shard.records[i % len(self.shard.records)]
        commands: dict[str, c.Command] = {
            "poison": c.Poison(self.request(), record.range, "bad"),
            "retry": c.RetryPartition(self.request(), record.range),
            "force": c.ForceRelease(self.request(), record.range),
        }
        answer = self.ask(commands[what])
        if isinstance(answer, Accepted) and record.state is PartitionState.CLAIMED:
            for held in self.held:
                held.over = held.over or held.grant.range == record.range
            self.tokens = [
                max(t, record.token + 1)
                if what == "force" and record.range.begin <= i < record.range.end
                else t
                for i, t in enumerate(self.tokens)
            ]

    @precondition(lambda self: self.recent)
    @rule(i=_index)
    def replay(self, i: int) -> None:
        command, answer = self.recent[-1 - i % len(self.recent)]
        if isinstance(answer, Refused) or (
            isinstance(command, c.Held) and not isinstance(command, c.Release | c.Fail)
        ):
            return
        if (isinstance(answer, Granted) and not answer.grants) or isinstance(
            command, c.Poison | c.RetryPartition | c.ForceRelease
        ):
            return
        if isinstance(command, c.ClaimPartitions):
            self.replay_claim(command, answer)
            return
        after, again = machine.apply(self.shard, command, self.alive.__contains__)
        assert (after, again) == (self.shard, answer), "a replay was not the same"

    def replay_claim(self, command: c.ClaimPartitions, answer: Answer) -> None:
        """Only a claim whose answer never came is asked again, so that its grants are still held."""
        assert isinstance(answer, Granted)
        held = [h for h in self.held if h.grant in answer.grants and h.session == command.session]
        if not held or not all(self.rightful(h) for h in held):
            return
        after, again = machine.apply(self.shard, command, self.alive.__contains__)
        assert after is self.shard, "a replay changed something"
        assert isinstance(again, Granted)
        found = [(grant.range, grant.token) for grant in again.grants]
        expected = [(grant.range, grant.token) for grant in answer.grants]
        assert sorted(found) == sorted(expected), "a replay was granted something else"

    @invariant()
    def records_are_in_order_and_apart(self) -> None:
        end = 0
        for record in self.shard.records:
            assert record.range.begin >= end
            end = record.range.end
        assert end <= ROWS

    @invariant()
    def what_was_completed_stays_completed(self) -> None:
        done = {
            row
            for r in self.shard.records
            if r.state is PartitionState.COMPLETED
            for row in range(r.range.begin, r.range.end)
        }
        assert done == {row for row, held in enumerate(self.completed) if held}

    def teardown(self) -> None:
        """Nothing is stranded: one living worker can finish all that is left."""
        self.alive = ["last"]
        for _ in range(200):
            for record in self.shard.records:
                if record.state is PartitionState.POISONED:
                    self.ask(c.RetryPartition(self.request(), record.range))
            first = len(self.held)
            self.grant(self.ask(c.ClaimPartitions(self.request(), "last", "last", 4, LIMIT)), "last")
            if len(self.held) == first and not any(
                r.state is PartitionState.POISONED for r in self.shard.records
            ):
                break
            for held in self.held[first:]:
                assert isinstance(self.ask(c.AckPartition(self.request(), *held.args, "x")), Accepted)
        assert self.shard.done
        assert all(record.state is PartitionState.COMPLETED for record in self.shard.records)


PROFILE = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

TestClaims = Claims.TestCase
TestClaims.settings = PROFILE


def _without_token(record: PartitionRecord | None, command: c.Held, alive: Alive) -> Refused | None:
    return _fence(record, replace(command, token=record.token if record else 0), alive)


def _without_liveness(record: PartitionRecord | None, command: c.Held, alive: Alive) -> Refused | None:
    return _fence(record, command, lambda _: True)


_fence = machine.fence


@pytest.mark.parametrize("mutant", [_without_token, _without_liveness])
def test_a_machine_without_the_check_is_caught(mutant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "fence", mutant)
    with pytest.raises(AssertionError, match="the wrong one"):
        run_state_machine_as_test(
            Claims, settings=settings(PROFILE, phases=[Phase.generate], report_multiple_bugs=False)
        )

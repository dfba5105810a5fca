from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.control.claims import commands as c
from penstock.control.claims.machine import REMEMBERED, apply
from penstock.control.claims.model import (
    Accepted,
    Answer,
    CheckpointRef,
    Failure,
    Grant,
    Granted,
    PartitionRecord,
    PartitionState,
    Refusal,
    Refused,
    Shard,
)
from penstock.core.ranges import Range

P, C, D, X = PartitionState.PENDING, PartitionState.CLAIMED, PartitionState.COMPLETED, PartitionState.POISONED
EMPTY = Shard(Range(0, 45), 10)
FIRST = CheckpointRef(1, 2, "d1")
SECOND = CheckpointRef(2, 2, "d2")


def alive(session: str) -> bool:
    return not session.startswith("dead")


def shard(*records: PartitionRecord) -> Shard:
    return Shard(EMPTY.span, EMPTY.grid, records)


def record(begin: int, end: int, state: PartitionState, token: int = 1, **fields: Any) -> PartitionRecord:
    if state is C:
        fields = {"owner": "me", "session": "s"} | fields
    return replace(PartitionRecord(Range(begin, end), state, token), **fields)


def claim(count: int = 1, session: str = "s", request: str = "r", limit: int = 3) -> c.ClaimPartitions:
    return c.ClaimPartitions(request, session, "me", count, limit)


def claim_ranges(*ranges: tuple[int, int]) -> c.ClaimPartitions:
    return replace(claim(len(ranges)), ranges=tuple(Range(*r) for r in ranges))


def granted(answer: Answer) -> list[tuple[int, int, int]]:
    assert isinstance(answer, Granted)
    return [(g.range.begin, g.range.end, g.token) for g in answer.grants]


def bare(after: Shard) -> Shard:
    """Without what is remembered."""
    return replace(after, memories=())


# claiming


@pytest.mark.parametrize(
    ("before", "count", "expected"),
    [
        pytest.param(EMPTY, 2, [(0, 10, 1), (10, 20, 1)], id="untouched, lowest first"),
        pytest.param(EMPTY, 9, [(0, 10, 1), (10, 20, 1), (20, 30, 1), (30, 40, 1), (40, 45, 1)], id="all"),
        pytest.param(shard(record(0, 10, C)), 1, [(10, 20, 1)], id="after a claimed one"),
        pytest.param(shard(record(3, 7, D)), 3, [(0, 3, 1), (7, 10, 1), (10, 20, 1)], id="around off-grid"),
        pytest.param(shard(record(5, 25, C)), 3, [(0, 5, 1), (25, 30, 1), (30, 40, 1)], id="off-grid, wide"),
        pytest.param(shard(record(0, 10, P, 4)), 1, [(10, 20, 1)], id="untouched before given back"),
        pytest.param(
            shard(record(0, 10, C), record(20, 30, P, 4, checkpoints=(CheckpointRef(1, 4, "d"),))),
            2,
            [(20, 30, 5), (10, 20, 1)],
            id="begun first",
        ),
        pytest.param(
            shard(record(0, 10, P, 2, attempts=2), record(10, 20, P, 1, attempts=1), record(20, 45, D)),
            2,
            [(10, 20, 2), (0, 10, 3)],
            id="fewest failures first",
        ),
        pytest.param(
            shard(
                record(0, 10, P, 3, attempts=3, checkpoints=(FIRST,)),
                record(10, 20, P, 2, attempts=2, checkpoints=(FIRST,)),
                record(20, 30, P, 1, attempts=1, checkpoints=(FIRST,)),
                record(30, 40, P, 1, checkpoints=(FIRST,)),
            ),
            5,
            [(30, 40, 2), (20, 30, 2), (40, 45, 1), (10, 20, 3), (0, 10, 4)],
            id="begun only until it failed twice",
        ),
        pytest.param(shard(record(0, 45, D)), 1, [], id="completed"),
        pytest.param(shard(record(0, 45, X)), 1, [], id="poisoned"),
        pytest.param(shard(record(0, 45, C)), 1, [], id="claimed"),
        pytest.param(shard(record(0, 45, C, session="dead")), 1, [(0, 45, 2)], id="lease over"),
    ],
)
def test_what_is_claimed(before: Shard, count: int, expected: list[tuple[int, int, int]]) -> None:
    after, answer = apply(before, claim(count), alive)
    assert granted(answer) == expected
    held = [(r.range.begin, r.range.end, r.token) for r in after.records if r.session == "s"]
    assert set(expected) <= set(held)
    assert list(after.records) == sorted(after.records, key=lambda r: r.range.begin)


def test_a_claim_that_finds_nothing_changes_nothing() -> None:
    before = shard(record(0, 45, C))
    assert apply(before, claim(), alive)[0] is before


def test_a_dead_session_claims_nothing() -> None:
    after, answer = apply(EMPTY, claim(session="dead"), alive)
    assert after is EMPTY
    assert isinstance(answer, Refused)
    assert answer.kind is Refusal.SESSION_LOST


def test_a_lease_that_ran_out_counts_as_a_failure() -> None:
    refs = (CheckpointRef(2, 1, "d"),)
    before = shard(record(0, 10, C, owner="other", session="dead", checkpoints=refs))
    after, answer = apply(before, claim(), alive)
    assert answer == Granted((Grant(Range(0, 10), 2, 1, refs),))
    assert after.records[0].errors == (Failure("other", "the lease of other ran out"),)


def test_a_partition_that_kills_its_owners_is_poisoned() -> None:
    before = shard(record(0, 45, C, session="dead", attempts=2))
    after, answer = apply(before, claim(), alive)
    assert granted(answer) == []
    assert (after.records[0].state, after.records[0].attempts, after.done) == (X, 3, True)


# explicit ranges


@pytest.mark.parametrize(
    ("before", "ranges", "rows"),
    [
        pytest.param(EMPTY, [(3, 17)], [(3, 17, C, 1)], id="off-grid"),
        pytest.param(EMPTY, [(20, 30), (0, 5)], [(0, 5, C, 1), (20, 30, C, 1)], id="two"),
        pytest.param(
            shard(record(0, 30, P, 4)), [(10, 20)], [(0, 10, P, 4), (10, 20, C, 5), (20, 30, P, 4)], id="cut"
        ),
        pytest.param(
            shard(record(0, 10, P, 4), record(10, 20, P, 7)),
            [(5, 25)],
            [(0, 5, P, 4), (5, 25, C, 8)],
            id="united",
        ),
        pytest.param(shard(record(0, 10, C, 4, session="dead")), [(0, 10)], [(0, 10, C, 5)], id="expired"),
    ],
)
def test_explicit_ranges(
    before: Shard, ranges: list[tuple[int, int]], rows: list[tuple[int, int, PartitionState, int]]
) -> None:
    after, _ = apply(before, claim_ranges(*ranges), alive)
    assert [(r.range.begin, r.range.end, r.state, r.token) for r in after.records] == rows


def test_checkpoints_survive_only_for_the_very_same_rows() -> None:
    before = shard(record(0, 20, P, checkpoints=(CheckpointRef(1, 1, "d"),)))
    same, _ = apply(before, claim_ranges((0, 20)), alive)
    cut, _ = apply(before, claim_ranges((0, 10)), alive)
    assert same.records[0].checkpoints
    assert not any(r.checkpoints for r in cut.records)


@pytest.mark.parametrize(
    "ranges", [[(5, 15)], [(40, 45), (9, 10)], [(20, 30), (25, 35)], [(20, 31)], [(40, 46)], [(41, 43)]]
)
def test_overlapping_ranges_change_nothing_at_all(ranges: list[tuple[int, int]]) -> None:
    before = shard(record(0, 10, C), record(10, 12, C, session="dead"), record(30, 40, D), record(42, 43, X))
    after, answer = apply(before, claim_ranges(*ranges), alive)
    assert isinstance(answer, Refused)
    assert answer.kind in (Refusal.OVERLAP, Refusal.UNKNOWN)
    assert after is before


# an owner's commands

HELD = (Range(0, 10), 3, "s")
OWNERS: dict[str, Callable[[Range, int, str], c.Held]] = {
    "renew": lambda r, t, s: c.Renew("q", r, t, s),
    "ack": lambda r, t, s: c.AckPartition("q", r, t, s, "digest"),
    "release": lambda r, t, s: c.Release("q", r, t, s),
    "fail": lambda r, t, s: c.Fail("q", r, t, s, "boom", 3),
    "save": lambda r, t, s: c.SaveCheckpoint("q", r, t, s, CheckpointRef(2, t, "d")),
    "drop": lambda r, t, s: c.DropCheckpoint("q", r, t, s, 1),
}


@pytest.mark.parametrize("name", OWNERS)
@pytest.mark.parametrize(
    ("before", "kind"),
    [
        pytest.param(shard(record(0, 10, C, 4)), Refusal.STALE_TOKEN, id="taken over"),
        pytest.param(shard(record(0, 10, C, 2)), Refusal.STALE_TOKEN, id="token from nowhere"),
        pytest.param(shard(record(0, 10, C, 3, session="t")), Refusal.STALE_TOKEN, id="other session"),
        pytest.param(shard(record(0, 10, P, 3)), Refusal.STALE_TOKEN, id="given back"),
        pytest.param(shard(record(0, 10, X, 3)), Refusal.STALE_TOKEN, id="poisoned"),
        pytest.param(shard(record(0, 10, D, 3, digest="other")), Refusal.STALE_TOKEN, id="completed"),
        pytest.param(shard(record(0, 5, C, 3)), Refusal.STALE_TOKEN, id="other rows"),
        pytest.param(EMPTY, Refusal.STALE_TOKEN, id="untouched"),
    ],
)
def test_who_does_not_hold_it_changes_nothing(name: str, before: Shard, kind: Refusal) -> None:
    after, answer = apply(before, OWNERS[name](*HELD), alive)
    assert after is before
    assert isinstance(answer, Refused)
    assert answer.kind is kind


@pytest.mark.parametrize("name", OWNERS)
def test_an_owner_past_its_lease_is_fenced_before_anybody_takes_over(name: str) -> None:
    before = shard(record(0, 10, C, 3, session="dead"))
    after, answer = apply(before, OWNERS[name](Range(0, 10), 3, "dead"), alive)
    assert after is before
    assert isinstance(answer, Refused)
    assert answer.kind is Refusal.SESSION_LOST


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("renew", record(0, 10, C, 3, attempts=1, checkpoints=(FIRST, SECOND))),
        ("ack", record(0, 10, D, 3, owner="me", attempts=1, digest="digest")),
        ("release", record(0, 10, P, 3, attempts=1, checkpoints=(FIRST, SECOND))),
        (
            "fail",
            record(0, 10, P, 3, attempts=2, errors=(Failure("me", "boom"),), checkpoints=(FIRST, SECOND)),
        ),
        ("save", record(0, 10, C, 3, attempts=1, checkpoints=(FIRST, CheckpointRef(2, 3, "d")))),
        ("drop", record(0, 10, C, 3, attempts=1, checkpoints=(SECOND,))),
    ],
)
def test_what_its_owner_does(name: str, expected: PartitionRecord) -> None:
    before = shard(record(0, 10, C, 3, attempts=1, checkpoints=(FIRST, SECOND)))
    after, answer = apply(before, OWNERS[name](*HELD), alive)
    assert bare(after) == shard(expected)
    assert answer == Accepted(expected.state)


def test_the_last_allowed_failure_poisons() -> None:
    before = shard(record(0, 10, C, 3, attempts=2))
    after, answer = apply(before, OWNERS["fail"](*HELD), alive)
    assert (answer, after.records[0].state) == (Accepted(X), X)


def test_the_last_errors_are_kept_and_cut() -> None:
    now = shard(record(0, 10, C, 3))
    for i in range(7):
        now, _ = apply(now, c.Fail(f"f{i}", Range(0, 10), 3 + i, "s", f"{i}" * 600, 99), alive)
        now, _ = apply(now, replace(claim_ranges((0, 10)), request=f"c{i}"), alive)
    errors = now.records[0].errors
    assert [error.error[0] for error in errors] == ["2", "3", "4", "5", "6"]
    assert [len(error.error) for error in errors] == [100, 100, 100, 100, 500]
    assert {error.owner for error in errors} == {"me"}


def test_a_recomputed_stage_replaces_what_follows_it() -> None:
    now = shard(record(0, 10, C, 3, checkpoints=(FIRST, SECOND, CheckpointRef(3, 2, "d3"))))
    now, _ = apply(now, OWNERS["save"](*HELD), alive)
    assert now.records[0].checkpoints == (FIRST, CheckpointRef(2, 3, "d"))


# an operator's commands


@pytest.mark.parametrize(
    ("before", "command", "expected"),
    [
        pytest.param(P, c.Poison("q", Range(0, 10), "bad"), X, id="poison pending"),
        pytest.param(C, c.Poison("q", Range(0, 10), "bad"), X, id="poison claimed"),
        pytest.param(X, c.Poison("q", Range(0, 10), "bad"), X, id="poison poisoned"),
        pytest.param(D, c.Poison("q", Range(0, 10), "bad"), Refusal.WRONG_STATE, id="poison completed"),
        pytest.param(X, c.RetryPartition("q", Range(0, 10)), P, id="retry poisoned"),
        pytest.param(P, c.RetryPartition("q", Range(0, 10)), P, id="retry pending"),
        pytest.param(C, c.RetryPartition("q", Range(0, 10)), Refusal.WRONG_STATE, id="retry claimed"),
        pytest.param(D, c.RetryPartition("q", Range(0, 10)), Refusal.WRONG_STATE, id="retry completed"),
        pytest.param(C, c.ForceRelease("q", Range(0, 10)), P, id="release claimed"),
        pytest.param(P, c.ForceRelease("q", Range(0, 10)), P, id="release pending"),
        pytest.param(D, c.ForceRelease("q", Range(0, 10)), Refusal.WRONG_STATE, id="release completed"),
        pytest.param(X, c.ForceRelease("q", Range(0, 10)), Refusal.WRONG_STATE, id="release poisoned"),
        pytest.param(P, c.RetryPartition("q", Range(0, 9)), Refusal.UNKNOWN, id="retry other rows"),
        pytest.param(P, c.ForceRelease("q", Range(0, 9)), Refusal.UNKNOWN, id="release other rows"),
        pytest.param(P, c.Poison("q", Range(0, 9), "bad"), Refusal.UNKNOWN, id="poison other rows"),
    ],
)
def test_what_an_operator_does(
    before: PartitionState, command: c.Command, expected: PartitionState | Refusal
) -> None:
    start = shard(record(0, 10, before, 3, attempts=3))
    after, answer = apply(start, command, alive)
    if isinstance(expected, Refusal):
        assert isinstance(answer, Refused)
        assert (answer.kind, after) == (expected, start)
    else:
        assert (answer, after.records[0].state) == (Accepted(expected), expected)


def test_an_untouched_partition_can_be_poisoned() -> None:
    after, _ = apply(EMPTY, c.Poison("q", Range(10, 20), "bad rows"), alive)
    assert after.records == (PartitionRecord(Range(10, 20), X, errors=(Failure("", "bad rows"),)),)


def test_retry_forgives_but_does_not_forget() -> None:
    before = shard(record(0, 10, X, 3, attempts=5, errors=(Failure("me", "boom"),)))
    after, _ = apply(before, c.RetryPartition("q", Range(0, 10)), alive)
    assert (after.records[0].attempts, after.records[0].errors) == (0, (Failure("me", "boom"),))


def test_a_forced_release_fences_the_owner() -> None:
    now, _ = apply(shard(record(0, 10, C, 3)), c.ForceRelease("q", Range(0, 10)), alive)
    _, answer = apply(now, replace(OWNERS["ack"](*HELD), request="a"), alive)
    assert isinstance(answer, Refused)
    _, answer = apply(now, claim_ranges((0, 10)), alive)
    assert granted(answer) == [(0, 10, 5)]


# replays


@pytest.mark.parametrize("command", [claim(2), *(make(*HELD) for make in OWNERS.values())])
def test_a_replay_gets_the_same_answer_and_changes_nothing(command: c.Command) -> None:
    before = shard(record(0, 10, C, 3, checkpoints=(FIRST,)))
    after, answer = apply(before, command, alive)
    again, same = apply(after, command, alive)
    assert (again, same) == (after, answer)


def test_a_replayed_ack_needs_neither_memory_nor_session() -> None:
    done, answer = apply(shard(record(0, 10, C, 3)), OWNERS["ack"](*HELD), alive)
    assert not done.memories
    assert apply(done, OWNERS["ack"](*HELD), lambda _: False) == (done, answer)


def test_a_replayed_checkpoint_does_not_drop_later_ones() -> None:
    first = c.SaveCheckpoint("a", *HELD, CheckpointRef(1, 3, "x"))
    second = c.SaveCheckpoint("b", *HELD, CheckpointRef(2, 3, "y"))
    now = shard(record(0, 10, C, 3))
    for command in (first, second, first):
        now, _ = apply(now, command, alive)
    assert [ref.stage for ref in now.records[0].checkpoints] == [1, 2]


def test_memory_is_bounded() -> None:
    now = EMPTY
    for i in range(REMEMBERED + 10):
        now = busy(now, f"{i}")
    assert len(now.memories) == REMEMBERED


def busy(now: Shard, name: str) -> Shard:
    """After somebody else's claim and release of the last rows, which is remembered."""
    now, _ = apply(now, replace(claim_ranges((40, 45)), request=f"c{name}"), alive)
    token = now.records[-1].token
    now, _ = apply(now, c.Release(f"r{name}", Range(40, 45), token, "s"), alive)
    return now


@pytest.mark.parametrize("command", [claim(2), claim_ranges((20, 30), (0, 10))])
def test_a_claim_is_known_again_for_as_long_as_it_is_held(command: c.ClaimPartitions) -> None:
    now, answer = apply(EMPTY, command, alive)
    for i in range(REMEMBERED + 10):
        now = busy(now, f"{i}")
    assert apply(now, command, alive) == (now, answer)


@pytest.mark.parametrize("name", ["release", "fail", "ack"])
def test_a_record_that_is_not_claimed_knows_no_request(name: str) -> None:
    now, _ = apply(EMPTY, claim(), alive)
    assert now.records[0].request == "r"
    now, _ = apply(now, OWNERS[name](Range(0, 10), 1, "s"), alive)
    assert now.records[0].request == ""

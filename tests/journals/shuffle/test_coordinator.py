"""What the coordinator says may be seen, epoch by epoch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import BadState
from penstock.journals.shuffle.queues.run_files import QueueRun, RunFile
from penstock.journals.shuffle.visibility.coordinator import (
    Promotion,
    ShuffleState,
    SliceReport,
    advance,
    reached,
)
from penstock.journals.shuffle.visibility.frontier import Frontier, Mark, unresolved
from penstock.journals.shuffle.visibility.joint import Acks
from penstock.storage import FileRecord

P, Q = 1 << 40 | 1, 1 << 40 | 2


def file(name: str, epoch: int, source: str = "s", size: int = 100) -> RunFile:
    return RunFile(source, epoch, FileRecord(name, 1, size, "ab" * 32), (QueueRun(0, 0, 1, 5, 5),))


def report(epoch: int, *files: RunFile, **marks: Mark) -> SliceReport:
    """What is told of journals ``s/a``, ``s/b`` and so on."""
    progress = Frontier.of((name.replace("_", "/"), mark) for name, mark in marks.items())
    return SliceReport(epoch, progress, files)


def cohort_of(source: str) -> str:
    return "late" if source.startswith("late") else "now"


def told(
    state: ShuffleState, epoch: int, *reports: SliceReport, now: float = 0.0
) -> tuple[ShuffleState, tuple[Promotion, ...]]:
    return advance(state, reports, epoch, now, cohort_of)


def paths(promotions: tuple[Promotion, ...]) -> list[str]:
    return [each.file.record.path for each in promotions]


def test_what_is_resolved_is_shown_at_once_and_spent() -> None:
    state, shown = told(ShuffleState(), 1, report(1, file("f", 1), s_a=Mark(P, 10, 0, -5)))
    assert shown == (Promotion(file("f", 1)),)
    assert state.waiting == ()
    assert state.spent == ("f",)
    state, shown = told(state, 2)
    assert (shown, state.spent) == ((), ())


def test_what_lacks_an_ack_waits_for_it() -> None:
    one = report(1, file("one", 1), s_a=Mark(P, 10), s_b=Mark(P, 0, 11))
    state, shown = told(ShuffleState(), 1, one)
    assert (shown, state.waiting) == ((), (file("one", 1),))
    assert list(unresolved(state.awaited)) == [("s/b", P, 11)]
    state, shown = told(state, 2, report(2, file("two", 2), s_b=Mark(P, 11, 0, -7)))
    assert paths(shown) == ["one", "two"]
    assert state.spent == ("one", "two")
    assert list(unresolved(state.awaited)) == []


def test_the_reports_of_all_members_count() -> None:
    one = report(1, file("one", 1), s_a=Mark(P, 10), s_b=Mark(P, 0, 11))
    two = report(1, file("two", 1), s_b=Mark(P, 11), s_a=Mark(P, 0, 10))
    for reports in ((one, two), (two, one)):
        _, shown = told(ShuffleState(), 1, *reports)
        assert sorted(paths(shown)) == ["one", "two"]


def test_reports_that_are_told_twice_do_no_harm() -> None:
    one = report(1, file("one", 1), s_a=Mark(P, 10), s_b=Mark(P, 0, 11))
    state, _ = told(ShuffleState(), 1, one)
    again, shown = told(state, 1, one)
    assert (again, shown) == (state, ())
    later, shown = told(state, 2, one)
    assert (later.waiting, shown) == ((file("one", 1),), ())
    state, shown = told(later, 3, report(3, file("three", 3), s_b=Mark(P, 11)))
    assert sorted(paths(shown)) == ["one", "three"]
    _, shown = told(state, 4, one, report(3, file("three", 3), s_b=Mark(P, 11)))
    assert shown == ()


def test_epochs_without_reports_change_nothing() -> None:
    state = ShuffleState()
    for epoch in range(3):
        state, shown = told(state, epoch)
        assert shown == ()
    state, _ = told(state, 5, report(5, file("f", 5), s_a=Mark(P, 10), s_b=Mark(P, 0, 11)))
    state, shown = told(state, 9)
    assert (shown, state.taken, len(state.waiting)) == ((), 9, 1)
    _, shown = told(state, 10, report(10, s_b=Mark(P, 11)))
    assert paths(shown) == ["f"]


def test_a_file_without_progress_waits_for_the_next_progress_of_its_cohort() -> None:
    state, shown = told(ShuffleState(), 1, report(1, file("f", 1)))
    assert (shown, state.waiting) == ((), (file("f", 1),))
    _, shown = told(state, 2, report(2, s_a=Mark(P, 10)))
    assert paths(shown) == ["f"]


def test_cohorts_do_not_wait_for_each_other() -> None:
    waits = report(1, file("one", 1), s_a=Mark(P, 10), s_b=Mark(P, 0, 11))
    goes = report(1, file("two", 1, "late"), late_a=Mark(P, 10))
    state, shown = told(ShuffleState(), 1, waits, goes)
    assert paths(shown) == ["two"]
    assert state.waiting == (file("one", 1),)
    state, shown = told(state, 2, report(2, late_b=Mark(P, 11)))
    assert shown == ()


def test_what_was_shown_ahead_is_not_shown_again() -> None:
    """P is read beyond what the first cut waits for, together with something that waits anew."""
    state, _ = told(ShuffleState(), 1, report(1, file("one", 1), s_a=Mark(P, 10), s_b=Mark(P, 0, 11)))
    second = report(2, file("two", 2), s_b=Mark(P, 30), s_a=Mark(Q, 20), s_c=Mark(Q, 0, 21))
    state, shown = told(state, 2, second)
    assert [(each.file.record.path, each.ahead) for each in shown] == [
        ("one", None),
        ("two", {("s/b", P): 11}),
    ]
    assert (state.spent, state.waiting) == (("one",), (file("two", 2),))
    state, shown = told(state, 3, report(3, s_c=Mark(Q, 21)))
    assert shown == (Promotion(file("two", 2), {("s/b", P): 11}),)
    assert state.waiting == ()


def test_a_hint_that_was_reached_long_before_is_told_by_whoever_reads_the_journal() -> None:
    state, _ = told(ShuffleState(), 1, report(1, s_b=Mark(P, 50, 0, -9)))
    state, shown = told(state, 2, report(2, file("f", 2), s_a=Mark(P, 10), s_b=Mark(P, 0, 11)))
    assert shown == ()
    assert reached(state.awaited, lambda journal, producer: 0) == Frontier()
    assert reached(state.awaited, lambda journal, producer: 10) == Frontier()
    known = reached(state.awaited, lambda journal, producer: 50)
    assert known == Frontier({"s/b": (Mark(P, 50),)})
    _, shown = told(state, 3, SliceReport(3, known))
    assert paths(shown) == ["f"]


def test_a_hint_that_nobody_reaches_is_stalled() -> None:
    first = report(1, file("f", 1), s_a=Mark(P, 10), s_b=Mark(P, 0, 11))
    state, _ = told(ShuffleState(), 1, first, now=100.0)
    assert state.stalled(105.0, 10.0) == []
    assert state.stalled(112.0, 10.0) == [("s/b", P, 11, 12.0)]
    state, _ = told(state, 2, report(2, s_a=Mark(P, 20)), now=200.0)
    assert state.stalled(201.0, 10.0) == [("s/b", P, 11, 101.0)]
    state, _ = told(state, 3, report(3, s_b=Mark(P, 12)), now=300.0)
    assert state.stalled(1000.0, 10.0) == []


def example() -> ShuffleState:
    one = report(1, file("one", 1), s_a=Mark(P, 10), s_b=Mark(P, 0, 11))
    state, _ = told(ShuffleState(), 1, one, report(1, file("gone", 1, "late"), late_a=Mark(P, 10)))
    return state


def test_states_and_reports_survive_json() -> None:
    state = example()
    assert state.spent
    assert ShuffleState.from_json(json.loads(json.dumps(state.to_json()))) == state
    many = Frontier.of((f"s/{n}", Mark(P + k, n + 1, 0, -n)) for n in range(100) for k in range(100))
    for each in (
        SliceReport(3),
        report(1, file("f", 1), s_a=Mark(P, 10, (1 << 64) - 1, 5)),
        SliceReport(9, many),
    ):
        assert SliceReport.from_json(json.loads(json.dumps(each.to_json()))) == each


def test_transactions_of_several_producers_survive_json() -> None:
    acks = (Acks("s/a", P, 10, 10), Acks("s/b", P + 1, 7, 7))
    progress = Frontier.of([("s/a", Mark(P, 10)), ("s/b", Mark(P + 1, 0, 7))], joint=[acks])
    told_ = SliceReport(1, progress)
    assert SliceReport.from_json(json.loads(json.dumps(told_.to_json()))) == told_
    old = SliceReport.from_json(told_.to_json() | {"joint": True}).progress
    assert old.joint == ((Acks("s/a", P, 0, 10), Acks("s/b", P + 1, 0, 7)),)
    wrong: list[Any] = [False, 1, [3], [[3]], [[["a", 1, 2]]], [[["b", 1, 2, 2], ["a", 1, 2, 2]]]]
    for each in wrong:
        with pytest.raises(BadState):
            SliceReport.from_json(told_.to_json() | {"joint": each})


WRONG: list[Callable[[dict[str, Any]], Any]] = [
    lambda body: None,
    lambda body: [],
    lambda body: "x",
    lambda body: {},
    lambda body: body | {"version": 2},
    lambda body: body | {"version": True},
    lambda body: body | {"more": 1},
]


@pytest.mark.parametrize(
    "change",
    [
        *WRONG,
        lambda body: body | {"taken": -1},
        lambda body: body | {"taken": 1.0},
        lambda body: body | {"pipelines": []},
        lambda body: body | {"pipelines": {"now": 3}},
        lambda body: body | {"waiting": {}},
        lambda body: body | {"waiting": [3]},
        lambda body: body | {"waiting": [{}]},
        lambda body: body | {"spent": "x"},
        lambda body: body | {"spent": [3]},
    ],
)
def test_what_is_no_state_of_a_shuffle_is_a_bad_state(change: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(BadState):
        ShuffleState.from_json(change(example().to_json()))


@pytest.mark.parametrize(
    "change",
    [
        *WRONG,
        lambda body: body | {"epoch": "1"},
        lambda body: body | {"progress": {}},
        lambda body: body | {"progress": [3]},
        lambda body: body | {"progress": [[[[9, "a"], [[1, 1, 1, 1]]]]]},
        lambda body: body | {"files": 3},
        lambda body: body | {"files": [None]},
    ],
)
def test_what_is_no_report_is_a_bad_state(change: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(BadState):
        SliceReport.from_json(change(report(1, file("f", 1), s_a=Mark(P, 10)).to_json()))

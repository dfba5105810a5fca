"""The rule of watermarks, over every order in which parts may be found, asked and moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sources.base import PartName
from penstock.streams.api.stream import SourceSpec, Timestamps
from penstock.streams.ingest.watermarks import Lows, advanced, lateness_of, latest, told
from penstock.streams.model import OPEN, Brought, PartState, Standing
from tests.streams.owners import parts_of
from tests.streams.support import Clock, Crew, Scripted

SECOND = 1_000_000


def specs(lateness: float, idle_after: float | None) -> dict[str, SourceSpec]:
    return {"s": SourceSpec("s", Scripted(), Timestamps("at", lateness, "keep", idle_after=idle_after))}


def standing(**low: int) -> Standing:
    return Standing(low=low, open=1)


# the rule


def test_the_watermark_is_the_least_of_all_less_the_lateness() -> None:
    lateness = lateness_of(specs(2.0, None))
    found = advanced([standing(s=9 * SECOND), standing(s=5 * SECOND), standing()], lateness)
    assert found == {"s": 3 * SECOND}


def test_a_part_that_nobody_has_read_holds_it_back() -> None:
    assert advanced([standing(s=9), standing(s=OPEN)], {"s": 0}) == {}


def test_it_never_goes_back() -> None:
    before = Standing(low={"s": 3}, watermark={"s": 7}, open=1)
    assert advanced([before], {"s": 0}) == {"s": 7}


def test_what_was_late_before_there_were_parts_with_times_stays_late() -> None:
    old = Standing.decode('{"format":1,"newest":{"s":5000000,"other":1}}')
    assert told([old], {"s": SECOND}) == advanced([old], {"s": SECOND}) == {"s": 4 * SECOND}


def test_a_part_is_idle_when_it_was_asked_for_so_long_and_had_nothing() -> None:
    clock, name = Clock(), PartName("s", "a")
    lows = Lows(specs(0.0, 10.0), clock)
    asked, known = {name: PartState("1")}, {name: PartState("1", newest=3)}
    known = dict(lows.moved(known, asked, {}, {"s": 50}))
    clock.now += 9.0
    known = dict(lows.moved(known, asked, {}, {"s": 60}))
    assert lows.of(known) == {"s": 3}
    clock.now += 1.0
    known = dict(lows.moved(known, asked, {}, {"s": 70}))
    # What the source had brought before it was asked: a row that it brings later was written after that.
    assert (known[name].idle, lows.of(known)) == (True, {"s": 70})
    known = dict(lows.moved(known, asked, {name: 65}, {"s": 80}))
    assert (known[name].idle, lows.of(known)) == (False, {"s": 65})


def test_a_part_that_was_not_asked_is_not_idle_however_long_it_takes() -> None:
    clock, name = Clock(), PartName("s", "a")
    lows = Lows(specs(0.0, 1.0), clock)
    known = {name: PartState()}
    clock.now += 100.0
    assert lows.of({**known, **lows.moved(known, {}, {}, {"s": 9})}) == {"s": OPEN}


def test_finished_parts_hold_nothing_back_and_cost_nothing() -> None:
    name = PartName("s", "a")
    lows = Lows(specs(0.0, 1.0), Clock())
    moved = lows.moved({name: PartState("1", newest=3)}, {name: PartState("2", True)}, {name: 4}, {})
    assert moved == {name: PartState("2", True)}
    assert lows.of(moved) == {}


# many interleavings


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[str, int]]]:
    """Rows of parts, written in the order of their times, and what happens until they are read."""
    count = draw(st.integers(1, 4))
    gaps = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 3)), min_size=1, max_size=24))
    parts: list[list[int]] = [[] for _ in range(count)]
    now = 10
    for part, gap in gaps:
        now += gap
        parts[part].append(now * SECOND)
    acts = st.sampled_from(["write", "write", "epoch", "epoch", "wait", "abort", "move", "die", "full"])
    return parts, draw(st.lists(st.tuples(acts, st.integers(1, 5)), min_size=5, max_size=40))


def written(parts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The rows in the order in which they are written: time and part."""
    return sorted((time, part) for part, rows in enumerate(parts) for time in rows)


def write(source: Scripted, coming: list[tuple[int, int]], number: int) -> None:
    """The next rows are there, and the parts of which they are the first."""
    for time, part in coming[:number]:
        source.rows.setdefault(f"p{part}", []).append(time)
        source.endless.add(f"p{part}")
    del coming[:number]


def wait(crew: Crew, number: int) -> None:
    crew.clock.now += number


def fill_or_empty_the_queue(crew: Crew, number: int) -> None:
    del number
    crew.room = 0 if crew.room else 1 << 20


def die(crew: Crew, number: int) -> None:
    for member in list(crew.workers):
        crew.die(member)
    crew.seat(*MEMBERS[number % 4])


MEMBERS = [("ann",), ("ann", "ben"), ("ben", "cleo"), ("ann", "ben", "cleo")]
ACTS: dict[str, Callable[[Crew, int], object]] = {
    "epoch": lambda crew, number: crew.epochs(min(number, 2)),
    "abort": lambda crew, _: crew.fail(),
    "move": lambda crew, number: crew.move(*MEMBERS[number % 4]),
    "wait": wait,
    "die": die,
    "full": fill_or_empty_the_queue,
}


@settings(max_examples=100, deadline=None)
@given(stories(), st.sampled_from([0.0, 3.0, None]))
def test_no_row_that_was_written_in_order_is_ever_late(
    story: tuple[list[list[int]], list[tuple[str, int]]], idle_after: float | None
) -> None:
    """Parts appear with their first row; who reads them, and when, is up to chance."""
    parts, acts = story
    source = Scripted()
    stamps = Timestamps("at", 0.0, "keep", idle_after=idle_after)
    crew = Crew("ann", "ben", list_every=1.0, timestamps=stamps, s=source)
    coming = written(parts)
    for act, number in acts:
        if act == "write":
            write(source, coming, number)
        else:
            ACTS[act](crew, number)
    crew.room = 1 << 20
    write(source, coming, len(coming))
    for _ in range(9):
        crew.clock.now += 5.0
        crew.epoch()
    rows = crew.rows()
    assert [row for row in rows if row.startswith("late")] == []
    assert len(rows) == len(set(rows)) == sum(map(len, parts))
    marks = [Standing.decode(text).watermark for each in crew.chain for text in each.frontiers.values()]
    each = [mark["s"] for mark in marks if "s" in mark]
    assert each == sorted(each)
    if idle_after is not None:
        # Nobody waits for ever: all but the last rows are behind the watermark.
        assert latest(marks).get("s") == max(time for rows in parts for time in rows)


# a stream with several instances


def timed(*members: str, idle_after: float | None = None, **parts: Sequence[int]) -> tuple[Crew, Scripted]:
    """A stream with event time, given in seconds, in which rows may be out of order by one second."""
    source = Scripted(**{name: [s * SECOND for s in seconds] for name, seconds in parts.items()})
    source.endless = set(parts)
    stamps = Timestamps("at", 1.0, "keep", idle_after=idle_after)
    return Crew(*members, timestamps=stamps, s=source), source


def thresholds(crew: Crew, member: str) -> list[int | None]:
    return [
        poll.thresholds["s"] // SECOND if poll.thresholds else None for poll in crew.ingestions[member].polls
    ]


def test_rows_are_late_behind_the_slowest_part_of_all_instances() -> None:
    mine, others = next(parts_of("ann", "ann", "ben")), next(parts_of("ben", "ann", "ben"))
    parts: dict[str, Any] = {mine: [50], others: [100]}
    crew, source = timed("ann", "ben", **parts)
    crew.epochs(4)
    source.rows[others] += [48 * SECOND, 49 * SECOND, 200 * SECOND]
    brought = crew.brought(crew.epoch())
    assert brought == {"ben": [f"late {others}:1", f"{others}:2", f"{others}:3"]}
    assert thresholds(crew, "ann")[-1] == thresholds(crew, "ben")[-1] == 49


def test_a_log_file_that_appears_behind_the_others_is_not_late() -> None:
    crew, source = timed("ann", "ben", a=[100])
    crew.epochs(4)
    source.rows["a"] += [150 * SECOND]
    source.rows["b"] = [120 * SECOND]
    source.endless.add("b")
    source.rows["a"] += [200 * SECOND]
    crew.epochs(4)
    assert [row for row in crew.rows() if row.startswith("late")] == []


def test_the_threshold_of_lateness_never_goes_back() -> None:
    names = [f"p{n}" for n in range(6)]
    parts: dict[str, Any] = {name: [10 * n] for n, name in enumerate(names)}
    crew, source = timed("ann", "ben", idle_after=0.0, **parts)
    crew.epochs(5)
    for members in (("ben",), ("cleo",), ("ann", "cleo")):
        crew.move(*members)
        for ingestion in crew.ingestions.values():
            ingestion.polls.clear()
        for rows in source.rows.values():
            rows += [SECOND]
        crew.fail()
        crew.epochs(2)
        assert {threshold for member in members for threshold in thresholds(crew, member)} == {49}


def test_the_threshold_survives_the_death_of_everybody() -> None:
    crew, _ = timed("ann", a=[100])
    crew.epochs(4)
    crew.die("ann")
    crew.seat("ben")
    crew.epoch()
    assert thresholds(crew, "ben") == [99]


def test_rows_of_an_epoch_that_is_given_up_make_nothing_late() -> None:
    crew, source = timed("ann", a=[100])
    crew.epochs(4)
    source.rows["a"] += [500 * SECOND]
    crew.fail()
    crew.epoch()
    assert thresholds(crew, "ann")[-2:] == [99, 99]


def test_a_late_row_does_not_move_the_threshold() -> None:
    crew, source = timed("ann", a=[100])
    crew.epochs(4)
    source.rows["a"] += [5 * SECOND]
    crew.epochs(2)
    assert thresholds(crew, "ann")[-2:] == [99, 99]
    assert Standing.decode(crew.chain[-1].frontiers["ann"]).newest == {"s": 100 * SECOND}


def test_without_event_time_nothing_is_late() -> None:
    source = Scripted(a=[100])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    source.rows["a"] += [1]
    crew.epoch()
    assert [poll.thresholds for poll in crew.ingestions["ann"].polls] == [{}, {}]


@pytest.mark.parametrize("members", [("ann",), ("ann", "ben", "cleo")])
def test_a_watermark_that_moves_is_told_although_nobody_brings_rows(members: tuple[str, ...]) -> None:
    crew, _ = timed(*members, a=[100])
    crew.epochs(6)
    epochs = [[each.watermarks.get("s") for each in _brought(crew, n)] for n in range(6)]
    told = [max((mark for mark in marks if mark is not None), default=None) for marks in epochs]
    assert told.count(99 * SECOND) == 1
    assert all(one is None or other is None or one <= other for one, other in pairwise(told))


def _brought(crew: Crew, number: int) -> list[Brought]:
    return [Brought.decode(text) for text in crew.chain[number].files]

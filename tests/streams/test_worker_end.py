"""When an instance answers no more: errors, fencing, and the end of the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count

import pytest

from penstock.control.cluster.rules.model import BarrierKind, Outcome, Seat
from penstock.errors import SessionLost, StreamError
from penstock.streams.api.stream import SourceSpec
from penstock.streams.model import END, OPEN
from tests.streams.owners import lister, owner, parts_of
from tests.streams.support import Crew, Scripted, all_of

DEADLINE = 10.0

# errors


def refused(crew: Crew) -> str:
    decision = crew.end(crew.announce())
    assert decision.outcome is Outcome.ABORT
    return decision.reason


def test_parts_of_a_source_that_this_instance_does_not_know_are_an_error() -> None:
    crew = Crew("ann", s=Scripted(a=[1]), t=Scripted(b=[1]))
    crew.epochs(2)
    crew.move("ben")
    del crew.sources["t"]
    with pytest.raises(StreamError, match="parts of t, which this instance does not know") as raised:
        crew.announce()
    assert "same definition" in (raised.value.hint or "")


def test_new_parts_of_a_source_that_only_others_know_are_an_error() -> None:
    # Ben begins to list another source, which Ann has never heard of.
    others = next(t for t in (f"t{n}" for n in count()) if lister("ann", "ben", source=t) == "ben")
    crew = Crew("ann", "ben", s=Scripted(a=[1]))
    crew.epoch()
    new = Scripted(**{f"p{n}": [1] for n in range(8)})
    known, crew.sources = crew.sources, {**crew.sources, others: SourceSpec(others, new)}
    crew.start("ben")
    crew.sources = known
    crew.epoch()
    assert f"parts of {others}, which this instance does not know" in refused(crew)


def test_a_failed_epoch_leaves_nothing_behind() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", s=source)
    crew.epochs(1)
    ingestion = crew.ingestions["ann"]

    def broken() -> None:
        raise RuntimeError("executor lost")

    ingestion.during = broken
    assert "executor lost" in refused(crew)
    ingestion.during = lambda: None
    crew.epoch()
    assert crew.rows() == ["a:0"]


# fencing


def in_the_middle(
    crew: Crew, member: str, kind: BarrierKind, act: Callable[[], object]
) -> list[BaseException]:
    """Let a worker work in another thread, do something while its job runs, and see what it raised."""
    reached, go_on, raised = threading.Event(), threading.Event(), list[BaseException]()

    def during() -> None:
        reached.set()
        assert go_on.wait(DEADLINE)

    crew.ingestions[member].during = during
    barrier = crew.announce(
        kind, crew.snapshot.seats, (Seat("zoe", "later"),) if kind is BarrierKind.DRAIN else ()
    )

    def work() -> None:
        try:
            crew.workers[member].prepare(barrier)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert reached.wait(DEADLINE)
    act()
    go_on.set()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    crew.ingestions[member].during = lambda: None
    return raised


@pytest.mark.parametrize("kind", [BarrierKind.EPOCH, BarrierKind.DRAIN])
def test_an_instance_that_is_fenced_in_the_middle_of_a_job_gives_no_answer(kind: BarrierKind) -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    worker = crew.workers["ann"]
    raised = in_the_middle(crew, "ann", kind, worker.fenced)
    assert [type(error) for error in raised] == [SessionLost]
    assert crew.ingestions["ann"].cancelled == 1
    worker.fenced()
    assert not worker.holding.parts


def test_an_instance_that_is_fenced_while_it_lists_gives_no_answer() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", s=source)
    crew.epoch()
    source.on_look = crew.workers["ann"].fenced
    with pytest.raises(SessionLost):
        crew.workers["ann"].prepare(crew.announce())


def test_an_instance_that_was_fenced_before_it_was_asked_gives_no_answer() -> None:
    crew = Crew("ann", s=Scripted(a=[1]))
    crew.epochs(2)
    barrier = crew.announce()
    crew.workers["ann"].fenced()
    with pytest.raises(SessionLost):
        crew.workers["ann"].prepare(barrier)


def test_an_instance_that_comes_back_goes_on_from_what_was_committed() -> None:
    source = Scripted(a=[1, 2])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    source.rows["a"] += [3]
    worker = crew.workers["ann"]
    in_the_middle(crew, "ann", BarrierKind.EPOCH, worker.fenced)
    worker.fenced()
    crew.seat("ann")
    crew.epoch()
    assert crew.rows() == all_of(a=3)


# the end


def run_to_the_end(crew: Crew, most: int = 10) -> int:
    """How many epochs it took."""
    for number in range(1, most + 1):
        crew.clock.now += 1.0
        if crew.epoch().watermark == END:
            return number
    raise AssertionError(f"no end after {most} epochs")


def test_the_end_comes_when_all_parts_of_all_instances_have_finished() -> None:
    names = [f"p{n}" for n in range(12)]
    crew = Crew("ann", "ben", "cleo", s=Scripted(**{name: [1, 2] for name in names}))
    run_to_the_end(crew)
    assert sorted(crew.rows()) == all_of(**dict.fromkeys(names, 2))


def test_the_end_waits_for_the_last_part_of_any_instance() -> None:
    source = Scripted(**{f"p{n}": [1] for n in range(12)})
    source.endless = {"p5"}
    crew = Crew("ann", "ben", "cleo", s=source)
    crew.epochs(6)
    assert crew.scope.watermark == OPEN
    source.endless = set()
    run_to_the_end(crew)


def test_the_end_comes_with_an_instance_that_has_no_parts() -> None:
    members = ("ann", "ben", "cleo")
    idle = next(m for m in members if m not in (lister(*members), owner("a", *members)))
    crew = Crew(*members, s=Scripted(a=[1]))
    run_to_the_end(crew)
    assert crew.ingestions[idle].polls == []


def test_a_source_without_any_part_ends() -> None:
    crew = Crew("ann", "ben", s=Scripted())
    run_to_the_end(crew)
    assert crew.rows() == []


def test_a_source_without_any_part_does_not_end_a_stream_whose_other_source_has_some() -> None:
    full = Scripted(a=[1])
    full.endless = {"a"}
    crew = Crew("ann", "ben", s=Scripted(), t=full)
    crew.epochs(6)
    assert crew.scope.watermark == OPEN
    full.endless = set()
    run_to_the_end(crew)


def test_a_growing_source_never_ends() -> None:
    growing = Scripted(a=[1])
    growing.grows = True
    crew = Crew("ann", "ben", s=growing, t=Scripted(b=[1]))
    crew.epochs(8)
    assert crew.scope.watermark == OPEN


def test_the_end_is_not_said_before_parts_that_were_just_found_are_read() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", "ben", s=source)
    crew.epochs(2)
    source.rows["b"] = [2]
    run_to_the_end(crew)
    assert crew.rows() == ["a:0", "b:0"]


@pytest.mark.parametrize("member", ["ann", "ben"])
def test_a_part_that_appears_while_the_last_one_finishes_elsewhere_is_not_missed(member: str) -> None:
    # The source is listed first, then the last part has its last row read, and splits in that moment.
    other = {"ann": "ben", "ben": "ann"}[member]
    last = next(parts_of(member, "ann", "ben"))
    source = Scripted(**{last: [1]})
    source.endless = {last}
    crew = Crew("ann", "ben", s=source)
    crew.epochs(2)
    barrier = crew.announce()
    answers = {other: crew.ask(other, barrier)}
    source.endless = set()
    source.rows["child"] = [2]
    answers[member] = crew.ask(member, barrier)
    assert {work.watermark for work in answers.values()} - {None} != {END}
    crew.workers["ann"].aborted(barrier.epoch)
    crew.workers["ben"].aborted(barrier.epoch)
    run_to_the_end(crew)
    assert sorted(crew.rows()) == sorted([f"{last}:0", "child:0"])


def test_the_end_is_said_only_in_an_epoch_in_which_the_source_was_asked() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", list_every=60.0, s=source)
    crew.epochs(5)
    looks = source.looks
    assert crew.scope.watermark == OPEN
    crew.clock.now += 1.0
    assert crew.epoch().watermark == END
    assert source.looks == looks + 1


def test_a_rescale_in_between_does_not_bring_the_end_forward() -> None:
    names = [f"p{n}" for n in range(6)]
    source = Scripted(**{name: [1] for name in names})
    source.endless = {"p3"}
    crew = Crew("ann", s=source)
    crew.epochs(3)
    for members in (("ann", "ben"), ("ben",), ("ben", "cleo")):
        crew.move(*members)
        crew.epochs(3)
        assert crew.scope.watermark == OPEN
    source.rows["p3"] += [2]
    source.endless = set()
    run_to_the_end(crew)
    assert sorted(crew.rows()) == sorted([*(f"{name}:0" for name in names), "p3:1"])


def test_the_end_comes_although_owners_change_after_all_has_finished() -> None:
    crew = Crew("ann", s=Scripted(a=[1], b=[1]))
    crew.epochs(2)
    crew.move("ann", "ben")
    crew.fail()
    crew.move("ben")
    run_to_the_end(crew)
    assert crew.rows() == ["a:0", "b:0"]

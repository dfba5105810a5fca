"""What an instance answers at barriers: which parts it reads, from where, and when all is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pytest

from penstock.cluster.assignment import part_owner
from penstock.cluster.model import Decision, Kind, Outcome, Seat, Snapshot
from penstock.errors import CorruptFile, SessionLost, StreamError
from penstock.streams.ingest import Limits
from penstock.streams.model import END, OPEN, PartName, Standing
from penstock.streams.stream import SourceSpec, Timestamps
from penstock.streams.worker import Allowance
from tests.streams.support import LIMITS, ROOMY, Crew, Scripted, all_of

SECOND = 1_000_000
DEADLINE = 10.0


def owner(part: str, *members: str, source: str = "s") -> str:
    return part_owner([Seat(member, "") for member in members], source, part)


def lister(*members: str, source: str = "s") -> str:
    return owner("", *members, source=source)


def parts_of(member: str, *members: str) -> Iterator[str]:
    """Names of parts that ``member`` owns among ``members``."""
    return (name for name in (f"p{n}" for n in count()) if owner(name, *members) == member)


def moving(before: str, after: str, *, old: Sequence[str], new: Sequence[str]) -> str:
    """The name of a part that goes from one member to another when the members change."""
    return next(name for name in parts_of(before, *old) if owner(name, *new) == after)


def standing(decision: Decision, member: str) -> Standing:
    return Standing.decode(decision.frontiers[member])


# the list of parts


def test_parts_are_listed_in_the_first_epoch_and_read_from_the_next_on() -> None:
    crew = Crew("ann", s=Scripted(a=[1, 2], b=[3]))
    assert crew.brought(crew.epoch()) == {}
    assert sorted(crew.brought(crew.epoch())["ann"]) == all_of(a=2, b=1)


def test_every_part_is_read_by_its_owner_alone() -> None:
    members = ("ann", "ben", "cleo")
    names = [f"p{n}" for n in range(20)]
    crew = Crew(*members, s=Scripted(**{name: [1] for name in names}))
    crew.epoch()
    brought = {member: set(rows) for member, rows in crew.brought(crew.epoch()).items()}
    assert brought == {m: {f"{n}:0" for n in names if owner(n, *members) == m} for m in members}


def test_one_instance_lists_for_all() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", "ben", "cleo", s=source)
    crew.epochs(3)
    assert source.looks == 3


@pytest.mark.parametrize("late_owner", ["ann", "ben"])
def test_a_new_part_is_read_one_epoch_after_it_was_found(late_owner: str) -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", "ben", s=source)
    crew.epochs(2)
    new = next(parts_of(late_owner, "ann", "ben"))
    source.rows[new] = [7]
    assert crew.brought(crew.epoch()) == {}
    assert crew.brought(crew.epoch()) == {late_owner: [f"{new}:0"]}


def test_the_source_is_not_asked_more_often_than_configured() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", list_every=5.0, s=source)
    crew.epochs(4)
    crew.clock.now += 4.9
    crew.epoch()
    assert source.looks == 1
    crew.clock.now += 0.2
    crew.epoch()
    assert source.looks == 2


def test_the_source_is_asked_soon_when_nothing_is_left_to_read() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", list_every=5.0, s=source)
    crew.epochs(2)
    crew.clock.now += 0.6
    crew.epoch()
    assert source.looks == 2


def test_a_part_that_is_no_longer_listed_goes_on_being_read() -> None:
    source = Scripted(a=[1, 2])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    source.hidden = {"a"}
    source.rows["a"] += [3, 4]
    crew.epoch()
    crew.move("ben")
    source.rows["a"] += [5]
    crew.epochs(2)
    assert crew.rows() == all_of(a=5)


def test_a_part_that_was_found_and_not_yet_read_survives_a_change_of_owners() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    source.rows["new"] = [2]
    crew.epoch()
    source.hidden = {"new"}
    crew.move("ben")
    crew.epochs(2)
    assert "new:0" in crew.rows()


def test_what_is_found_in_an_epoch_that_is_given_up_is_looked_for_again_at_once() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", list_every=60.0, s=source)
    crew.fail()
    crew.epoch()
    assert source.looks == 2
    crew.epoch()
    assert crew.rows() == ["a:0"]


# finished parts


def test_a_finished_part_is_never_read_again() -> None:
    source = Scripted(a=[1, 2], b=[1])
    source.endless = {"b"}
    crew = Crew("ann", s=source)
    crew.epochs(3)
    source.rows["a"] += [3]
    crew.epochs(2)
    assert crew.polled("ann") == [{"s/a", "s/b"}, {"s/b"}, {"s/b"}, {"s/b"}]


def test_a_finished_part_is_remembered_by_those_it_moves_to() -> None:
    old, new = ("ann",), ("ann", "ben")
    name, other = moving("ann", "ben", old=old, new=new), next(parts_of("ann", *new))
    source = Scripted(**{name: [1], other: [1]})
    source.endless = {other}
    crew = Crew(*old, s=source)
    crew.epochs(2)
    crew.move(*new)
    crew.epochs(3)
    crew.move("ben")
    crew.epochs(2)
    assert crew.rows() == sorted([f"{name}:0", f"{other}:0"])
    assert set().union(*crew.polled("ben")) == {f"s/{other}"}


def test_a_finished_part_is_remembered_after_everything_was_killed() -> None:
    source = Scripted(a=[1], b=[1])
    source.endless = {"b"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    crew.die("ann")
    crew.seat("ann")
    source.rows["a"] += [2]
    crew.epochs(2)
    assert crew.polled("ann") == [{"s/b"}, {"s/b"}]
    assert crew.rows() == ["a:0", "b:0"]


def test_a_finished_part_that_is_listed_again_is_not_read_again() -> None:
    source = Scripted(a=[1], b=[1])
    source.endless = {"b"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    source.hidden = {"a"}
    crew.epoch()
    crew.move("ben")
    crew.epoch()
    source.hidden = set()
    crew.epochs(3)
    assert crew.rows() == ["a:0", "b:0"]


# where parts go on


def test_parts_go_on_where_they_were_when_owners_change() -> None:
    names = [f"p{n}" for n in range(12)]
    source = Scripted(**{name: [1, 2] for name in names})
    source.endless = set(names)
    crew = Crew("ann", s=source)
    crew.epochs(2)
    for members in (("ann", "ben"), ("ann", "ben", "cleo"), ("cleo",), ("ben", "cleo")):
        crew.move(*members)
        for rows in source.rows.values():
            rows += [3, 4]
        crew.epochs(2)
    assert sorted(crew.rows()) == all_of(**dict.fromkeys(names, 10))
    assert len(set(crew.rows())) == len(crew.rows())


def test_parts_of_the_dead_go_on_from_what_was_committed() -> None:
    names = [f"p{n}" for n in range(8)]
    source = Scripted(**{name: [1, 2] for name in names})
    source.endless = set(names)
    crew = Crew("ann", "ben", s=source)
    crew.epochs(2)
    crew.die("ben")
    crew.move("ann")
    for rows in source.rows.values():
        rows += [3]
    crew.epochs(2)
    assert sorted(crew.rows()) == all_of(**dict.fromkeys(names, 3))


def test_a_part_keeps_its_state_when_its_new_owner_dies_before_anything_was_committed() -> None:
    old, new = ("ann",), ("ann", "ben")
    name = moving("ann", "ben", old=old, new=new)
    source = Scripted(**{name: [1, 2, 3]})
    source.endless = {name}
    crew = Crew(*old, s=source)
    crew.epochs(2)
    crew.move(*new)
    barrier = crew.announce()
    crew.die("ben")
    assert crew.end(barrier).outcome is Outcome.ABORT
    crew.move("ann")
    crew.epochs(2)
    assert crew.rows() == all_of(**{name: 3})


def test_a_finished_part_stays_finished_when_its_new_owner_dies_before_anything_was_committed() -> None:
    old, new = ("ann",), ("ann", "ben")
    name = moving("ann", "ben", old=old, new=new)
    crew = Crew(*old, s=Scripted(**{name: [1]}))
    crew.epochs(2)
    crew.move(*new)
    barrier = crew.announce()
    crew.die("ben")
    crew.end(barrier)
    crew.move("ann")
    crew.epochs(3)
    assert crew.polled("ann") == [{f"s/{name}"}]


def test_a_part_nobody_read_yet_is_known_when_lister_and_owner_die_before_anything_was_committed() -> None:
    # Ben owns the new part and lists; Ann knew the list, and answers the drain alone.
    members = next(("ann", f"ben{n}") for n in count() if lister("ann", f"ben{n}") != "ann")
    ann, ben = members
    name = moving(ann, ben, old=[ann], new=members)
    source = Scripted(**{name: [1]})
    crew = Crew(ann, s=source)
    crew.epoch()
    source.hidden = {name}
    crew.move(*members)
    barrier = crew.announce()
    crew.die(ben)
    crew.end(barrier)
    crew.move(ann)
    crew.epochs(2)
    assert crew.rows() == [f"{name}:0"]


def test_an_epoch_that_is_given_up_is_read_again_from_what_was_committed() -> None:
    source = Scripted(a=[1, 2])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    source.rows["a"] += [3]
    crew.fail()
    source.rows["a"] += [4]
    crew.epoch()
    assert crew.rows() == all_of(a=4)


def test_nothing_is_read_twice_when_the_first_epoch_after_a_move_is_given_up() -> None:
    source = Scripted(a=[1, 2])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    crew.move("ben")
    source.rows["a"] += [3]
    crew.fail()
    crew.epoch()
    assert crew.rows() == all_of(a=3)


def test_two_lives_of_one_member_write_to_different_files() -> None:
    source = Scripted(a=[1, 2])
    crew = Crew("ann", s=source)
    crew.epoch()
    crew.fail()
    before = set(crew.storage.files)
    crew.start("ann")
    crew.scope = type(crew.scope)(crew.scope.next - 1, None, crew.scope.committed, crew.scope.watermark)
    crew.epoch()
    assert before < crew.storage.files.keys()
    assert crew.storage.written() == {"listings": 2, "states": 2, "portions": 2, "rows": 2}


# drains


def test_a_drain_collects_exactly_what_leaves() -> None:
    old, new = ("ann", "ben"), ("ann", "ben", "cleo")
    names = [f"p{n}" for n in range(30)]
    done = moving("ann", "cleo", old=old, new=new)
    source = Scripted(**{name: [1] for name in [*names, done]})
    source.endless = set(names) - {done}
    crew = Crew(*old, s=source)
    crew.epochs(2)
    crew.drain(*new)
    for member in old:
        leaving = {n for n in source.endless if owner(n, *old) == member and owner(n, *new) == "cleo"}
        assert crew.ingestions[member].collected == [frozenset(PartName("s", n) for n in leaving)]


def test_a_drain_that_takes_nothing_away_starts_no_job() -> None:
    source = Scripted(**{next(parts_of("ann", "ann", "ben")): [1]})
    crew = Crew("ann", s=source)
    crew.epochs(2)
    crew.drain("ann", "ben")
    assert crew.ingestions["ann"].collected == []


def test_a_drain_brings_no_rows_and_says_nothing_of_the_end() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    source.rows["a"] += [2]
    drained = crew.drain("ben")
    assert (drained.files, drained.watermark) == ((), OPEN)


def test_work_goes_on_after_a_drain_whether_it_was_committed_or_not() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    target = (Seat("ben", "later"),)
    crew.end(crew.announce(Kind.DRAIN, crew.snapshot.seats, target), Outcome.ABORT)
    source.rows["a"] += [2]
    crew.epoch()
    crew.drain("ben")
    source.rows["a"] += [3]
    crew.epoch()
    assert crew.rows() == all_of(a=3)


def test_an_instance_that_is_assigned_nothing_holds_nothing() -> None:
    crew = Crew("ann", s=Scripted(a=[1]))
    crew.epochs(2)
    worker = crew.workers["ann"]
    crew.move("ben")
    worker.assigned(crew.snapshot, crew.decision)
    assert not worker.holding.parts
    worker.assigned(Snapshot(), crew.decision)
    assert not worker.holding.parts


# how much is read


def test_nothing_is_read_while_the_queue_is_full() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", s=source)
    crew.epoch()
    crew.room = 0
    crew.epochs(3)
    assert crew.ingestions["ann"].polls == []
    crew.room = 1 << 20
    crew.epoch()
    assert crew.rows() == ["a:0"]


def test_new_parts_are_found_while_the_queue_is_full_and_do_not_get_lost() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", s=source)
    crew.epochs(2)
    crew.room = 0
    source.rows["b"] = [1]
    crew.epochs(2)
    source.hidden = {"a", "b"}
    crew.move("ben")
    crew.room = 1 << 20
    crew.epochs(2)
    assert crew.rows() == ["a:0", "b:0"]


def test_a_full_queue_is_not_the_end() -> None:
    crew = Crew("ann", s=Scripted(a=[1]))
    crew.epoch()
    crew.room = 0
    crew.epochs(3)
    assert crew.scope.watermark == OPEN


def test_the_limits_are_those_of_the_configuration_while_there_is_room() -> None:
    assert Allowance(LIMITS, lambda: 1 << 40).limits(3) == LIMITS


def test_the_room_in_the_queue_is_shared() -> None:
    allowance = Allowance(Limits(1000, 5000, 1.0), lambda: 6000)
    assert allowance.limits(1) == Limits(1000, 5000, 1.0)
    assert allowance.limits(4) == Limits(1000, 1500, 1.0)


def test_the_room_in_the_queue_counts_in_rows_of_the_size_they_had() -> None:
    source = Scripted(a=[1] * 50)
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    crew.room = 35
    crew.epoch()
    assert crew.ingestions["ann"].polls[-1].limits == Limits(3, 35, 1.0)
    crew.room = 9
    crew.epoch()
    assert crew.ingestions["ann"].polls[-1].limits == Limits(1, 9, 1.0)
    crew.room = 0
    crew.epoch()
    assert len(crew.ingestions["ann"].polls) == 3


def test_all_who_share_the_queue_are_counted() -> None:
    source = Scripted(**{f"p{n}": [1] for n in range(8)})
    crew = Crew("ann", "ben", s=source)
    crew.epoch()
    crew.room = 1000
    crew.epoch()
    assert {i.polls[-1].limits.bytes for i in crew.ingestions.values()} == {500}


def test_a_part_whose_turn_does_not_come_stays_where_it_was() -> None:
    names = [f"p{n}" for n in range(6)]
    source = Scripted(**{name: [1, 2, 3] for name in names})
    crew = Crew("ann", s=source)
    crew.epochs(2)
    for rows in source.rows.values():
        rows += [4]
    source.rows |= {f"q{n}": [1, 2, 3] for n in range(6)}
    crew.room = 40
    crew.epochs(4)
    crew.move("ben")
    crew.room = ROOMY
    crew.epochs(2)
    expected = all_of(**dict.fromkeys(names, 3), **{f"q{n}": 3 for n in range(6)})
    assert sorted(crew.rows()) == expected


def test_polls_take_turns_by_epoch() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(4)
    assert [poll.turn for poll in crew.ingestions["ann"].polls] == [2, 3, 4]


# event time


def timed(*members: str, **parts: Sequence[int]) -> tuple[Crew, Scripted]:
    """A stream with event time, given in seconds, in which a row may be one second late."""
    source = Scripted(**{name: [s * SECOND for s in seconds] for name, seconds in parts.items()})
    source.endless = set(parts)
    return Crew(*members, timestamps=Timestamps("at", 1.0, "keep"), s=source), source


def thresholds(crew: Crew, member: str) -> list[int | None]:
    polls = crew.ingestions[member].polls
    return [poll.thresholds.get("s", 0) // SECOND if poll.thresholds else None for poll in polls]


def test_rows_are_late_behind_the_newest_row_of_all_instances() -> None:
    mine, others = next(parts_of("ann", "ann", "ben")), next(parts_of("ben", "ann", "ben"))
    crew, source = timed("ann", "ben", **{mine: [5], others: [100]})
    crew.epochs(2)
    source.rows[mine] += [98 * SECOND, 99 * SECOND]
    brought = crew.brought(crew.epoch())
    assert brought == {"ann": [f"late {mine}:1", f"{mine}:2"]}
    assert thresholds(crew, "ann") == thresholds(crew, "ben") == [None, 99]


def test_the_threshold_of_lateness_never_goes_back() -> None:
    names = [f"p{n}" for n in range(6)]
    crew, source = timed("ann", "ben", **{name: [10 * n] for n, name in enumerate(names)})
    crew.epochs(2)
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
    crew.epochs(2)
    crew.die("ann")
    crew.seat("ben")
    crew.epoch()
    assert thresholds(crew, "ben") == [99]


def test_rows_of_an_epoch_that_is_given_up_make_nothing_late() -> None:
    crew, source = timed("ann", a=[100])
    crew.epochs(2)
    source.rows["a"] += [500 * SECOND]
    crew.fail()
    crew.epoch()
    assert thresholds(crew, "ann") == [None, 99, 99]


def test_a_late_row_does_not_move_the_threshold() -> None:
    crew, source = timed("ann", a=[100])
    crew.epochs(2)
    source.rows["a"] += [5 * SECOND]
    crew.epochs(2)
    assert thresholds(crew, "ann") == [None, 99, 99]
    assert standing(crew.chain[-1], "ann").newest == {"s": 100 * SECOND}


def test_without_event_time_nothing_is_late() -> None:
    source = Scripted(a=[100])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    source.rows["a"] += [1]
    crew.epoch()
    assert [poll.thresholds for poll in crew.ingestions["ann"].polls] == [{}, {}]


# files


def test_states_lists_and_portions_are_written_only_when_they_changed() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", "ben", s=source)
    crew.epochs(3)
    reader = owner("a", "ann", "ben")
    before = crew.storage.written()
    assert before == {"listings": 1, "states": 1, "portions": 1, "rows": 1}
    quiet = [crew.epoch() for _ in range(3)]
    assert crew.storage.written() == before
    assert {decision.frontiers[reader] for decision in quiet} == {crew.chain[2].frontiers[reader]}
    source.rows["a"] += [2]
    crew.epoch()
    assert crew.storage.written() == before + type(before)(states=1, portions=1, rows=1)
    source.rows["b"] = [3]
    crew.epoch()
    assert crew.storage.written()["listings"] == 2


def test_an_epoch_that_is_given_up_changes_nothing_that_the_next_one_points_to() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    before = crew.chain[-1].frontiers
    source.rows["a"] += [2]
    crew.fail()
    source.rows["a"].pop()
    assert crew.epoch().frontiers == before


def test_an_answer_stays_short_however_many_parts_there_are() -> None:
    source = Scripted(**{f"p{n}": [n] for n in range(500)})
    crew = Crew("ann", s=source)
    crew.epoch()
    decision = crew.epoch()
    assert len(decision.frontiers["ann"]) < 1000
    assert len(decision.files[0]) < 1000


def test_a_states_file_that_is_gone_is_an_error_that_names_it() -> None:
    crew = Crew("ann", s=Scripted(a=[1]))
    crew.epochs(2)
    pointer = standing(crew.chain[-1], "ann").states
    assert pointer is not None
    del crew.storage.files[pointer.path]
    crew.move("ben")
    with pytest.raises(CorruptFile, match=pointer.path):
        crew.announce()


# errors


def refused(crew: Crew) -> str:
    decision = crew.end(crew.announce())
    assert decision.outcome is Outcome.ABORT
    return decision.reason


def test_a_source_that_cannot_be_listed_fails_the_epoch_and_is_asked_again() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", list_every=60.0, s=source)

    def broken() -> None:
        raise ConnectionError("no route")

    source.on_look = broken
    assert "source s: list_parts failed: ConnectionError: no route" in refused(crew)
    source.on_look = lambda: None
    crew.epochs(2)
    assert crew.rows() == ["a:0"]


@pytest.mark.parametrize("found", [[7], ["a", None], [""], [b"a"], ["\ud800"], "abc", None])
def test_names_of_parts_must_be_text(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Scripted()
    monkeypatch.setattr(source, "list_parts", lambda: found)
    crew = Crew("ann", s=source)
    assert "source s: list_parts" in refused(crew)


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
    crew.workers["ben"]._sources = {**crew.sources, others: SourceSpec(others, new)}
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


def in_the_middle(crew: Crew, member: str, kind: Kind, act: Callable[[], object]) -> list[BaseException]:
    """Let a worker work in another thread, do something while its job runs, and see what it raised."""
    reached, go_on, raised = threading.Event(), threading.Event(), list[BaseException]()

    def during() -> None:
        reached.set()
        assert go_on.wait(DEADLINE)

    crew.ingestions[member].during = during
    barrier = crew.announce(kind, crew.snapshot.seats, (Seat("zoe", "later"),) if kind is Kind.DRAIN else ())

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


@pytest.mark.parametrize("kind", [Kind.EPOCH, Kind.DRAIN])
def test_an_instance_that_is_fenced_in_the_middle_of_a_job_gives_no_answer(kind: Kind) -> None:
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
    in_the_middle(crew, "ann", Kind.EPOCH, worker.fenced)
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

"""What an instance answers at barriers: which parts it reads, and from where."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from penstock.control.cluster.rules.model import BarrierKind, Outcome, Seat, Snapshot
from penstock.errors import TerminalError
from penstock.sources.base import PartName
from penstock.streams.model import OPEN
from tests.streams.owners import lister, moving, owner, parts_of
from tests.streams.support import Crew, Scripted, all_of

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


def test_what_is_found_in_an_epoch_that_is_given_up_is_told_in_the_next() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", list_every=60.0, s=source)
    crew.fail()
    crew.epoch()
    assert source.looks == 1
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
    source.endless = {"a"}
    crew.epoch()
    crew.ask("ann", crew.announce())
    before = set(crew.storage.files)
    crew.start("ann")
    crew.scope = type(crew.scope)(crew.scope.next - 1, None, crew.scope.committed, crew.scope.watermark)
    crew.epoch()
    assert before < crew.storage.files.keys()
    assert crew.storage.written() == {"listings": 1, "states": 2, "portions": 2, "rows": 2}


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
    crew.end(crew.announce(BarrierKind.DRAIN, crew.snapshot.seats, target), Outcome.ABORT)
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


def test_an_assignment_that_was_made_in_another_way_is_refused() -> None:
    crew = Crew("ann", s=Scripted(a=[1]))
    crew.epochs(2)
    worker = crew.workers["ann"]
    with pytest.raises(TerminalError, match="hash 'other'"):
        worker.assigned(replace(crew.snapshot, hash="other"), crew.decision)
    assert not worker.holding.parts

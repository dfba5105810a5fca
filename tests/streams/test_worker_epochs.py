"""What an instance makes of one epoch: how much it reads, and which files it writes."""

from __future__ import annotations

import pytest

from penstock.control.cluster.rules.model import Decision
from penstock.errors import CorruptFile
from penstock.streams.ingest.finished_parts import FINISHED, STATES
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.pacing import Allowance
from penstock.streams.model import OPEN, Pointer, Standing
from tests.streams.owners import owner
from tests.streams.support import LAYOUT, LIMITS, ROOMY, Crew, Scripted, all_of

SECOND = 1_000_000


def standing(decision: Decision, member: str) -> Standing:
    return Standing.decode(decision.frontiers[member])


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
    allowance = Allowance(PollLimits(1000, 5000, 1.0), lambda: 6000)
    assert allowance.limits(1) == PollLimits(1000, 5000, 1.0)
    assert allowance.limits(4) == PollLimits(1000, 1500, 1.0)


def test_the_room_in_the_queue_counts_in_rows_of_the_size_they_had() -> None:
    source = Scripted(a=[1] * 50)
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    crew.room = 35
    crew.epoch()
    assert crew.ingestions["ann"].polls[-1].limits == PollLimits(3, 35, 1.0)
    crew.room = 9
    crew.epoch()
    assert crew.ingestions["ann"].polls[-1].limits == PollLimits(1, 9, 1.0)
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


def test_parts_that_waited_longest_come_first() -> None:
    names = [f"p{n}" for n in range(10)]
    source = Scripted(**{name: [1] * 50 for name in names})
    source.endless = set(names)
    crew = Crew("ann", s=source)
    crew.epochs(2)
    for rows in source.rows.values():
        rows += [1]
    crew.room = 30
    crew.epochs(4)
    assert sorted(crew.rows()) == all_of(**dict.fromkeys(names, 51))


def test_what_tasks_learn_of_the_size_of_rows_is_told_to_the_next() -> None:
    allowance = Allowance(PollLimits(1000, 5000, 1.0), lambda: 6000)
    allowance.learn(Polled({}, sizes={"s": 80.0, "t": 8.0}))
    allowance.learn(Polled({}, sizes={"s": 90.0}))
    limits = allowance.limits(1)
    assert limits is not None
    assert limits.share(2) == PollLimits(500, 2500, 1.0, {"s": 90.0, "t": 8.0})


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


def test_files_of_an_epoch_that_is_given_up_are_deleted() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", "ben", s=source)
    crew.epochs(2)
    before = dict(crew.storage.files)
    source.rows |= {"a": [1, 2], "b": [3]}
    for _ in range(3):
        crew.fail()
        assert crew.storage.files == before
    crew.epochs(2)
    assert sorted(crew.rows()) == all_of(a=2, b=1)


def test_files_of_the_others_stay_when_the_own_job_fails() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", s=source)
    crew.epoch()
    barrier = crew.announce()
    rows = LAYOUT.epoch_rows(barrier.epoch)
    crew.storage.files = {**crew.storage.files, f"{rows}/anna-1.json": b"", f"{rows}/.ann-1.tmp": b""}
    before = dict(crew.storage.files)
    own = f"{rows}/.{crew.workers['ann']._polls._own}-0-1.arrow.tmp"
    crew.storage.files[own] = b"half"
    crew.ingestions["ann"].during = lambda: 1 / 0
    work = crew.ask("ann", barrier)
    assert work.refusal
    assert "ZeroDivisionError" in work.refusal
    assert crew.storage.files == before


def test_files_that_cannot_be_deleted_are_told_and_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = Crew("ann", s=Scripted(a=[1]))
    crew.epoch()
    monkeypatch.setattr(crew.storage, "delete", lambda path: 1 / 0)
    crew.fail()
    assert "files of epoch 2, which was given up, were not deleted" in caplog.text
    crew.epoch()
    assert crew.rows() == ["a:0"]


def test_finished_parts_are_written_only_when_one_finishes() -> None:
    source = Scripted(a=[1], b=[1], c=[1])
    source.endless = {"b", "c"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    first = standing(crew.chain[-1], "ann")
    source.rows["b"] += [2]
    crew.epoch()
    second = standing(crew.chain[-1], "ann")
    assert (second.finished == first.finished, second.states == first.states) == (True, False)
    source.endless = {"c"}
    crew.epoch()
    third = standing(crew.chain[-1], "ann")
    assert third.finished is not None
    assert third.states is not None
    assert third.finished.read(crew.storage, FINISHED).parts.keys() == {"s/a", "s/b"}
    assert third.states.read(crew.storage, STATES).parts.keys() == {"s/c"}


def test_a_standing_without_a_file_of_finished_parts_can_be_read() -> None:
    text = '{"format":1,"states":{"path":"p","sha256":"x"},"listing":null,"newest":{"s":1}}'
    assert Standing.decode(text) == Standing(Pointer("p", "x"), None, {"s": 1})


def test_an_answer_stays_short_however_many_parts_there_are() -> None:
    source = Scripted(**{f"p{n}": [n] for n in range(500)})
    crew = Crew("ann", s=source)
    crew.epoch()
    decision = crew.epoch()
    assert len(decision.frontiers["ann"]) < 1000
    assert len(decision.files[0]) < 1000


@pytest.mark.parametrize("kind", ["states", "finished"])
def test_a_states_file_that_is_gone_is_an_error_that_names_it(kind: str) -> None:
    source = Scripted(a=[1], b=[1])
    source.endless = {"b"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    pointer = getattr(standing(crew.chain[-1], "ann"), kind)
    del crew.storage.files[pointer.path]
    crew.move("ben")
    with pytest.raises(CorruptFile, match=pointer.path):
        crew.announce()

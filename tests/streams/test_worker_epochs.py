"""What an instance makes of one epoch: how much it reads, what is late, and which files it writes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.cluster.model import Decision
from penstock.errors import CorruptFile
from penstock.streams.allowance import Allowance
from penstock.streams.ingest import Limits, Polled
from penstock.streams.model import OPEN, Pointer, Standing
from penstock.streams.stream import Timestamps
from tests.streams.owners import owner, parts_of
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
    allowance = Allowance(Limits(1000, 5000, 1.0), lambda: 6000)
    allowance.learn(Polled({}, sizes={"s": 80.0, "t": 8.0}))
    allowance.learn(Polled({}, sizes={"s": 90.0}))
    limits = allowance.limits(1)
    assert limits is not None
    assert limits.share(2) == Limits(500, 2500, 1.0, {"s": 90.0, "t": 8.0})


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
    own = f"{rows}/.{crew.workers['ann']._books.own}-0-1.arrow.tmp"
    crew.storage.files[own] = b"half"
    source.on_look = lambda: 1 / 0
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
    assert third.finished.read(crew.storage)["parts"].keys() == {"s/a", "s/b"}
    assert third.states.read(crew.storage)["parts"].keys() == {"s/c"}


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

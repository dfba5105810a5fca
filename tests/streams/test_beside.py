"""Parts whose polls take longer than an epoch may: nothing waits for them, and their rows come, once.

Time is compressed: polls say how long they take, and no epoch may take longer than the time-out.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from penstock.config import ClusterConfig
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Decision, Outcome, Seat
from penstock.errors import SourceFailed, StreamError
from penstock.sinks import ParquetSink
from penstock.sources.base import Part, PartName, StatefulSource
from penstock.sources.state import State
from penstock.storage import Storage
from penstock.streams import instance
from penstock.streams.api.stream import SourceSpec, Stream, Timestamps
from penstock.streams.ingest.holding import Holding
from penstock.streams.ingest.jobs import epoch_job
from penstock.streams.ingest.jobs.epoch_job import Ingestion, PollsTooSlow
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.journal_shuffle import NOTHING, ShuffleWork
from penstock.streams.ingest.pacing import Allowance
from penstock.streams.ingest.slow_polls import SlowJob, SlowPolls
from penstock.streams.ingest.worker import StreamWorker
from penstock.streams.model import PartState, Standing
from penstock.types.tables import Table
from tests.streams.fleet import STREAM
from tests.streams.owners import parts_of
from tests.streams.station import Station
from tests.streams.support import LAYOUT, LIMITS, Crew, MemoryIngestion, MemoryStorage, Scripted, all_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT = 30.0
WITHIN = 10.0
SECOND = 1_000_000


class Paced(MemoryIngestion):
    """Reads parts that take their time, by the clock of the test."""

    crew: SlowCrew
    error: Exception | None = None

    def poll(
        self,
        prefix: str,
        parts: Mapping[PartName, PartState],
        limits: PollLimits,
        thresholds: Mapping[str, int],
        asked: Mapping[PartName, int],
        shuffle: ShuffleWork = NOTHING,
        within: float | None = None,
    ) -> Polled:
        took = {name: self.crew.takes[name.part] for name in parts if name.part in self.crew.takes}
        if within is not None:
            marked = frozenset(name for name, seconds in took.items() if seconds >= within / 4)
            self._pass(max(took.values(), default=0.0), within, marked if self.crew.marks else frozenset())
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return replace(super().poll(prefix, parts, limits, thresholds, asked), took=took)

    def collect(self, parts: Mapping[PartName, PartState], within: float | None = None) -> Polled:
        if within is not None:
            self._pass(max((self.crew.takes.get(name.part, 0.0) for name in parts), default=0.0), within)
        return super().collect(parts)

    def _pass(self, seconds: float, within: float, marked: frozenset[PartName] = frozenset()) -> None:
        self.crew.clock.now += min(seconds, within)
        if seconds > within:
            error = PollsTooSlow("polls took too long")
            error.slow = marked
            raise error


class SlowCrew(Crew):
    """Members of whose parts some take long. No epoch may take longer than the time-out."""

    workers: dict[str, StreamWorker]

    def __init__(self, *members: str, timestamps: Timestamps | None = None, **sources: Scripted) -> None:
        self.takes: dict[str, float] = {}
        self.marks = True
        """Whether tasks leave marks of the parts that take long."""
        self.errands: dict[str, tuple[float, Callable[[], object]]] = {}
        """By member, when a job beside the epochs is done, and what it does then."""
        self.besides: dict[str, Paced] = {}
        super().__init__(*members, list_every=0.0, timestamps=timestamps, **sources)

    def start(self, member: str) -> StreamWorker:
        ingestion, slow = (Paced(self.sources, self.storage) for _ in range(2))
        ingestion.crew = slow.crew = self

        def run(work: Callable[[], object]) -> None:
            job = slow_polls.pending
            assert job is not None
            longest = max((self.takes.get(name.part, 0.0) for name in job.parts), default=0.0)
            self.errands[member] = self.clock.now + longest, work

        slow_polls = SlowPolls(slow, self.storage, LAYOUT, WITHIN, self.clock, run)
        worker = StreamWorker(
            member,
            self.sources,
            ingestion,
            self.storage,
            LAYOUT,
            Allowance(LIMITS, lambda: self.room),
            self.list_every,
            self._since,
            self.clock,
            self.told.append,
            self.run,
            slow_polls,
        )
        self.workers[member], self.ingestions[member], self.besides[member] = worker, ingestion, slow
        self._versions[member] = 0
        return worker

    def end(self, barrier: Barrier, outcome: Outcome | None = None) -> Decision:
        for member, (ready, work) in list(self.errands.items()):
            if ready <= self.clock.now:
                del self.errands[member]
                work()
        # Members work side by side.
        longest, began = 0.0, self.clock.now
        asking = self.ask

        def ask(member: str, asked: Barrier) -> object:
            nonlocal longest
            self.clock.now = began
            work = asking(member, asked)
            longest = max(longest, self.clock.now - began)
            return work

        self.ask = ask  # type: ignore[method-assign, assignment]
        try:
            decision = super().end(barrier, outcome)
        finally:
            del self.ask
        assert longest <= TIMEOUT, "the barrier has timed out"
        self.clock.now = began + longest + 0.5
        return decision

    def die(self, member: str) -> None:
        super().die(member)
        self.errands.pop(member, None)

    def beside(self, member: str) -> set[PartName]:
        """The parts of the job beside the epochs that is under way."""
        slow = self.workers[member]._slow
        return set(slow.pending.parts) if slow is not None and slow.pending is not None else set()


def test_a_poll_of_three_time_outs_is_committed_and_neighbours_go_on_meanwhile() -> None:
    source = Scripted(slow=[1, 2, 3], quick=[])
    source.endless = {"quick", "slow"}
    crew = SlowCrew("ann", s=source)
    crew.takes["slow"] = 3 * TIMEOUT
    gaps = []
    for number in range(600):
        source.rows["quick"].append(number)
        before = crew.clock.now
        crew.epoch()
        gaps.append(crew.clock.now - before)
    rows = crew.rows()
    assert sorted(set(rows)) == sorted(rows)
    assert {"slow:0", "slow:1", "slow:2"} < set(rows)
    # All but the last are there, although it took long all the time; and only the first time was felt.
    assert sum(row.startswith("quick") for row in rows) > 590
    assert sum(gap > 1.0 for gap in gaps) == 1
    assert crew.polled("ann")[-1] == {"s/quick"}


def test_only_the_part_that_takes_long_waits_though_it_never_returns() -> None:
    source = Scripted(slow=[1], a=[1], b=[])
    source.endless = {"slow", "a", "b"}
    crew = SlowCrew("ann", s=source)
    crew.takes["slow"] = 1e9
    crew.epochs(3)
    source.rows["b"] += [1, 2]
    crew.epochs(3)
    assert sorted(crew.rows()) == all_of(a=1, b=2)
    assert crew.polled("ann")[-1] == {"s/a", "s/b"}
    assert {name.part for name in crew.beside("ann")} == {"slow"}


def test_where_each_part_of_a_source_takes_long_all_go_after_some_epochs() -> None:
    a, b, c, other = (PartName(*name) for name in (("s", "a"), ("s", "b"), ("s", "c"), ("t", "a")))
    slow = SlowPolls(MemoryIngestion({}, MemoryStorage()), MemoryStorage(), LAYOUT, WITHIN)
    everything = [a, b, c, other]
    slow.overrun(everything, {a})
    slow.overrun([b, c, other], {b})
    assert [slow.has(name) for name in everything] == [True, True, False, False]
    slow.in_time(Polled({}))
    slow.overrun([c, other], {other})
    assert not slow.has(c)
    slow.keep([])
    for _ in range(2):
        slow.overrun(everything, {a})
    assert [slow.has(name) for name in everything] == [True, True, True, False]


def test_parts_of_a_job_that_was_held_up_by_others_are_tried_again_first() -> None:
    source = Scripted(a=[1], b=[1])
    crew = SlowCrew("ann", s=source)
    crew.marks = False
    crew.takes["a"] = 20.0
    crew.epochs(3)
    crew.takes.clear()
    crew.epochs(2)
    assert (sorted(crew.rows()), crew.besides["ann"].polls) == (all_of(a=1, b=1), [])


def test_neighbours_that_were_suspected_are_polled_in_epochs_again() -> None:
    source = Scripted(slow=[1], a=[1, 2], b=[1, 2])
    source.endless = {"slow", "a", "b"}
    crew = SlowCrew("ann", s=source)
    crew.marks = False
    crew.takes["slow"] = 20.0
    crew.epochs(12)
    assert crew.rows() == []
    crew.epochs(50)
    assert sorted(crew.rows()) == all_of(slow=1, a=2, b=2)
    assert crew.polled("ann")[-1] == {"s/a", "s/b"}
    crew.takes.clear()
    crew.epochs(60)
    assert crew.polled("ann")[-1] == {"s/a", "s/b", "s/slow"}


def test_other_members_are_not_held_up_at_all() -> None:
    (mine,) = (next(parts_of("ann", "ann", "bob")),)
    other = next(parts_of("bob", "ann", "bob"))
    source = Scripted(**{mine: [1], other: [1]})
    crew = SlowCrew("ann", "bob", s=source)
    crew.takes[mine] = 5 * TIMEOUT
    crew.epochs(3)
    assert crew.rows() == [f"{other}:0"]
    while len(crew.rows()) < 2:
        crew.epoch()
        assert crew.clock.now < 100.0 + 7 * TIMEOUT
    assert crew.brought(crew.chain[-1]) == {"ann": [f"{mine}:0"]}
    # Then the stream comes to its end, as always.
    crew.epochs(4)
    assert crew.scope.watermark == 2**63 - 1


def test_what_came_is_not_lost_with_an_epoch_that_is_given_up() -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1, 2]))
    crew.takes["slow"] = 3 * TIMEOUT
    crew.epochs(3)
    crew.clock.now += 4 * TIMEOUT
    for _ in range(3):
        crew.fail()
    polls = len(crew.besides["ann"].polls)
    crew.epoch()
    assert (sorted(crew.rows()), len(crew.besides["ann"].polls)) == (all_of(slow=2), polls)
    # The files that were copied for the others, and the first ones, are gone.
    crew.epoch()
    assert not list(crew.storage.list(LAYOUT.polled))
    assert crew.storage.written()["rows"] == 1


def test_what_came_of_a_quick_neighbour_comes_once_though_its_epoch_is_given_up() -> None:
    source = Scripted(slow=[1], quick=[1, 2])
    source.endless = {"slow", "quick"}
    crew = SlowCrew("ann", s=source)
    crew.takes["slow"] = 20.0
    crew.epochs(3)
    crew.clock.now += 60.0
    for _ in range(3):
        crew.fail()
    crew.epochs(10)
    assert sorted(crew.rows()) == all_of(slow=1, quick=2)


def test_one_that_is_slow_and_in_time_goes_on_from_what_it_brought() -> None:
    source = Scripted(slow=[1])
    source.endless = {"slow"}
    crew = SlowCrew("ann", s=source)
    crew.takes["slow"] = 0.9 * WITHIN
    crew.epochs(3)
    assert crew.rows() == ["slow:0"]
    source.rows["slow"].append(2)
    crew.clock.now += 60.0
    crew.epochs(3)
    assert crew.rows() == ["slow:0", "slow:1"]
    assert len(crew.polled("ann")) == 1


@pytest.mark.parametrize("seed", range(8))
def test_rows_come_once_whatever_happens(seed: int) -> None:
    dice = Random(seed)
    names = [f"p{n}" for n in range(4)]
    source = Scripted(**{name: [n * SECOND for n in range(6)] for name in names})
    timestamps = Timestamps("at", 10.0, "keep", idle_after=20.0) if seed % 2 else None
    crew = SlowCrew("ann", "bob", s=source, timestamps=timestamps)
    for _ in range(120):
        crew.marks = dice.random() < 0.8
        if dice.random() < 0.2:
            crew.takes[dice.choice(names)] = dice.choice([0.0, 6.0, 12.0, 100.0])
        act = dice.random()
        if act < 0.1:
            crew.fail()
        elif act < 0.15:
            crew.move(*dice.choice([("ann",), ("ann", "bob"), ("bob", "cid")]))
        elif act < 0.2:
            member = dice.choice(sorted(crew.workers))
            crew.die(member)
            crew.drain(*sorted({*crew.workers, "cid"}))
            crew.seat(*sorted({*crew.workers, "cid"}))
        else:
            crew.epoch()
    crew.takes.clear()
    crew.clock.now += 200.0
    crew.epochs(10)
    assert sorted(crew.rows()) == all_of(p0=6, p1=6, p2=6, p3=6)


def test_a_part_that_moves_while_it_is_polled_goes_on_from_what_is_committed() -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1, 2]))
    crew.takes["slow"] = 3 * TIMEOUT
    crew.epochs(4)
    crew.move("bob")
    assert crew.besides["ann"].cancelled == 1
    crew.epochs(4)
    crew.clock.now += 4 * TIMEOUT
    crew.epochs(4)
    assert sorted(crew.rows()) == all_of(slow=2)


def test_a_part_that_was_to_move_and_stayed_is_still_known_to_take_long() -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1, 2]))
    crew.takes["slow"] = 3 * TIMEOUT
    crew.epochs(4)
    target = (Seat("bob", "later"),)
    crew.end(crew.announce(BarrierKind.DRAIN, crew.snapshot.seats, target), Outcome.ABORT)
    asked = len(crew.polled("ann"))
    crew.epochs(2)
    assert len(crew.polled("ann")) == asked
    assert {name.part for name in crew.beside("ann")} == {"slow"}


def test_a_part_that_moves_before_an_epoch_was_committed_is_polled_no_more() -> None:
    """Such a drain is answered with nothing, and still ends what it must."""
    mine = next(parts_of("ann", "ann", "bob"))
    crew = SlowCrew("ann", s=Scripted(**{mine: [1]}))
    crew.takes[mine] = 3 * TIMEOUT
    crew.epochs(4)
    crew.move("ann", "bob")
    crew.fail()
    assert (crew.beside("ann"), crew.besides["ann"].cancelled) == ({PartName("s", mine)}, 0)
    crew.drain("ann", "bob")
    assert crew.beside("ann")
    crew.drain("bob")
    assert (crew.beside("ann"), crew.besides["ann"].cancelled) == (set(), 1)


def test_a_member_without_a_seat_polls_nothing() -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1]))
    crew.takes["slow"] = 3 * TIMEOUT
    crew.epochs(4)
    crew.seat("bob")
    crew.announce()
    assert (crew.beside("ann"), crew.besides["ann"].cancelled) == (set(), 1)


def test_a_member_that_cannot_take_over_polls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1]))
    crew.takes["slow"] = 3 * TIMEOUT
    crew.epochs(4)
    worker = crew.workers["ann"]

    def fail(_: object) -> Holding:
        raise StreamError("no storage")

    monkeypatch.setattr(worker._takeover, "assigned", fail)
    with pytest.raises(StreamError):
        worker.assigned(crew.snapshot, crew.decision)
    assert (crew.beside("ann"), crew.besides["ann"].cancelled) == (set(), 1)


def test_a_part_that_cannot_be_collected_in_time_moves_all_the_same() -> None:
    source = Scripted(slow=[1])
    source.endless.add("slow")
    crew = SlowCrew("ann", s=source)
    crew.epochs(3)
    crew.takes["slow"] = 3 * TIMEOUT
    assert crew.move("bob").outcome is Outcome.COMMIT
    source.rows["slow"].append(2)
    crew.epochs(3)
    crew.clock.now += 4 * TIMEOUT
    crew.epochs(3)
    assert sorted(crew.rows()) == all_of(slow=2)


def test_a_part_that_stays_is_not_polled_again_for_a_rescale() -> None:
    mine, other = next(parts_of("ann", "ann", "bob")), next(parts_of("bob", "ann", "bob"))
    source = Scripted(**{mine: [1], other: [1]})
    source.endless = {mine, other}
    crew = SlowCrew("ann", s=source)
    crew.takes[mine] = 3 * TIMEOUT
    crew.epochs(4)
    begun = Standing.decode(crew.chain[-1].frontiers["ann"]).beside
    crew.move("ann", "bob")
    # Its files are not swept meanwhile.
    assert Standing.decode(crew.chain[-1].frontiers["ann"]).beside == begun
    crew.epochs(2)
    crew.clock.now += 4 * TIMEOUT
    crew.epochs(2)
    assert sorted(crew.rows()) == all_of(**{mine: 1, other: 1})
    assert (crew.besides["ann"].cancelled, len(crew.besides["ann"].polls)) == (0, 1)


def test_rows_that_were_judged_by_another_watermark_are_read_again() -> None:
    name = PartName("s", "a")
    job = SlowJob(1, {name: PartState("1")}, LIMITS, {"s": 5}, {}, {}, "", 0.0)
    assert job.fits(Holding({name: PartState("1")}, Standing(watermark={"s": 5, "t": 9})))
    assert not job.fits(Holding({name: PartState("1")}, Standing(watermark={"s": 6})))
    assert not job.fits(Holding({name: PartState("2")}, Standing(watermark={"s": 5})))


def test_an_error_of_a_job_that_does_not_fit_any_more_refuses_no_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(MemoryIngestion):
        def poll(self, *_: object, **__: object) -> Polled:
            raise SourceFailed("no such table")

    name = PartName("s", "a")
    ingestion = Failing({}, MemoryStorage())
    slow = SlowPolls(ingestion, MemoryStorage(), LAYOUT, WITHIN, run=lambda work: work())
    slow.overrun([name], [name])

    def take(now: PartState) -> object:
        slow.begin(1, "ann", {name: PartState("1")}, LIMITS, {}, {}, {})
        return slow.take(2, "ann", Holding({name: now}))

    with caplog.at_level(logging.INFO):
        assert take(PartState("2")) is None
    assert "no such table" in caplog.text
    assert slow.pending is None
    with pytest.raises(SourceFailed):
        take(PartState("1"))


def test_a_job_that_was_about_to_begin_is_stopped() -> None:
    at_the_door, opened, ended = threading.Event(), threading.Event(), threading.Event()

    class Beginning(MemoryIngestion):
        runs = False

        def poll(self, *_: object, **__: object) -> Polled:
            at_the_door.set()
            opened.wait(10.0)
            self.runs = True
            ended.wait(10.0)
            raise SourceFailed("ended")

        def cancel(self) -> None:
            opened.set()
            if self.runs:
                ended.set()

    slow = SlowPolls(Beginning({}, MemoryStorage()), MemoryStorage(), LAYOUT, WITHIN)
    name = PartName("s", "a")
    slow.overrun([name], [name])
    slow.begin(1, "ann", {name: PartState()}, LIMITS, {}, {}, {})
    assert at_the_door.wait(10.0)
    slow.stop()
    assert ended.is_set()


def test_jobs_beside_leave_most_cores_to_the_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_job, "parallelism", lambda spark: 16)
    parts = {PartName("s", f"p{n}"): PartState() for n in range(40)}
    storage = Storage("s3://bucket")
    beside = Ingestion(cast("SparkSession", None), "0001", {}, storage, "beside", instance._BESIDE)
    assert len(beside._shares(parts)) == 4
    assert len(Ingestion(cast("SparkSession", None), "0001", {}, storage)._shares(parts)) == 16


def test_an_error_of_a_part_that_takes_long_fails_an_epoch_and_is_tried_again() -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1]))
    crew.takes["slow"] = 20.0
    crew.epochs(2)
    crew.besides["ann"].error = SourceFailed("no such table")
    crew.clock.now += 60.0
    decision = crew.end(crew.announce())
    assert decision.outcome is Outcome.ABORT
    assert "no such table" in str(decision.reason)
    crew.epochs(2)
    crew.clock.now += 60.0
    crew.epochs(2)
    assert crew.rows() == ["slow:0"]


def test_rows_that_are_gone_before_they_were_committed_are_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1]))
    crew.takes["slow"] = 20.0
    crew.epochs(2)
    crew.clock.now += 60.0
    crew.fail()
    for path, _ in list(crew.storage.list(LAYOUT.polled)):
        crew.storage.delete(path)
    with caplog.at_level(logging.WARNING):
        crew.epochs(2)
    assert "read again" in caplog.text
    crew.clock.now += 60.0
    crew.epochs(2)
    assert crew.rows() == ["slow:0"]


def test_status_says_which_source_takes_very_long() -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1]), t=Scripted(quick=[1]))
    crew.takes["slow"] = 1000.0
    crew.epochs(3)
    assert not crew.told
    crew.clock.now += 200.0
    crew.epoch()
    standing = Standing.decode(crew.chain[-1].frontiers["ann"])
    assert "has not returned for more than 3 min" in standing.problems["s"]
    crew.epochs(5)
    assert len(crew.told) == len(standing.problems)


def test_the_job_that_is_under_way_is_named_so_that_its_files_are_not_swept() -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1]))
    crew.takes["slow"] = 1000.0
    crew.epochs(2)
    begun = crew.chain[-1].epoch
    crew.epochs(5)
    assert Standing.decode(crew.chain[-1].frontiers["ann"]).beside == begun
    crew.clock.now += 1000.0
    crew.epoch()
    assert Standing.decode(crew.chain[-1].frontiers["ann"]).beside is None


def test_the_job_is_named_by_a_drain_after_an_epoch_that_was_given_up() -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1]))
    crew.takes["slow"] = 3 * TIMEOUT
    crew.epochs(3)
    begun = Standing.decode(crew.chain[-1].frontiers["ann"]).beside
    assert begun is not None
    crew.clock.now += 4 * TIMEOUT
    crew.fail()
    crew.drain("ann")
    assert Standing.decode(crew.chain[-1].frontiers["ann"]).beside == begun


def test_marks_are_read_when_the_job_has_ended() -> None:
    """A storage that takes long must not keep it running."""
    part, told = PartName("s", "a"), list[str]()

    class Watched(MemoryStorage):
        def list(self, prefix: str = "") -> list[tuple[str, int]]:
            told.append("read")
            return super().list(prefix)

    class Endless(Ingestion):
        def __init__(self, storage: Storage) -> None:
            self._storage = storage
            self._running = threading.Event()
            self._ended = threading.Event()

        def cancel(self) -> None:
            told.append("ended")
            self._ended.set()

        def _job(self, task: object, tasks: int) -> Polled:
            assert self._ended.wait(30.0)
            raise SourceFailed("ended")

    storage = Watched()
    storage.write("rows/ann-0-0-0.mark", json.dumps([["s", "a"]]).encode())
    with pytest.raises(PollsTooSlow) as caught:
        Endless(storage)._run(None, 1, 0.01, "rows/ann")
    assert caught.value.slow == {part}
    assert told[:2] == ["ended", "read"]
    assert not storage.files


def test_the_watermark_stands_still_until_what_was_judged_by_it_is_committed() -> None:
    """A row that was on time when it was polled is on time in its epoch."""
    source = Scripted(slow=[100 * SECOND], quick=[100 * SECOND])
    source.endless = {"slow", "quick"}
    crew = SlowCrew("ann", "bob", s=source, timestamps=Timestamps("at", 0.0, "keep", idle_after=5.0))
    crew.epochs(30)

    def watermark() -> int:
        found = [Standing.decode(text).watermark for text in crew.chain[-1].frontiers.values()]
        return max(each.get("s", 0) for each in found) // SECOND

    assert watermark() == 100
    crew.takes["slow"] = 60.0
    source.rows["quick"].append(200 * SECOND)
    crew.epochs(3)
    source.rows["slow"].append(150 * SECOND)
    for second in range(201, 240):
        source.rows["quick"].append(second * SECOND)
        crew.epoch()
    crew.takes.clear()
    for _ in range(60):
        crew.clock.now += 2.0
        crew.epoch()
    rows = crew.rows()
    assert "slow:1" in rows
    assert not [row for row in rows if row.startswith("late")]
    assert watermark() == 239


def test_a_drain_of_a_member_that_polls_beside_is_answered() -> None:
    crew = SlowCrew("ann", s=Scripted(slow=[1]))
    crew.takes["slow"] = 3 * TIMEOUT
    crew.epochs(3)
    assert crew.end(crew.announce(BarrierKind.DRAIN, crew.snapshot.seats)).outcome is Outcome.COMMIT
    crew.seat("ann")
    crew.epochs(2)
    crew.clock.now += 4 * TIMEOUT
    crew.epochs(2)
    assert crew.rows() == ["slow:0"]


# with Spark

# Spark frees the core of a task that was ended after two seconds, and then starts a process for the next one:
# polls must have more time than that.
SHORT = ClusterConfig(lease_ttl=2.0, renew_every=0.5, member_ttl=3.0, barrier_timeout=12.0)


class Numbers(Table):
    part: str
    number: int


class Dawdling(StatefulSource):
    """A source of which one part takes its time to be built, and for each poll."""

    table = Numbers

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def list_parts(self) -> list[str]:
        return ["slow", "quick"]

    def build_part(self, part: str, state: State) -> Part:
        return _Dawdling(part, int(state or 0), self.seconds if part == "slow" else 0.0)


class _Dawdling(Part):
    def __init__(self, part: str, done: int, seconds: float) -> None:
        self.part, self.done, self.seconds = part, done, seconds

    def poll(self, limit: int) -> list[dict[str, object]]:
        import time

        time.sleep(self.seconds or 0.2)
        self.done += 1
        return [{"part": self.part, "number": self.done}]

    def snapshot(self) -> int:
        return self.done


def test_a_real_poll_that_takes_longer_than_a_time_out(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream("dawdling")
    stream.output("all", stream.source("numbers", Dawdling(18.0)), ParquetSink())
    station = Station(spark, stream, tmp_path, replace(STREAM, max_seconds=0.3))
    station.config = replace(station.config, cluster=SHORT)

    def numbers(part: str) -> list[int]:
        rows = station.queue().to_pylist()
        return [row["number"] for row in rows if row["part"] == part]

    try:
        station.start()
        # It does not wait for its neighbour: it is polled more often.
        station.until(lambda: len(numbers("quick")) > len(numbers("slow")) >= 2, "rows of both parts", 180)
        for rows in numbers("slow"), numbers("quick"):
            assert rows == list(range(1, len(rows) + 1))
    finally:
        station.close()


class Stuck(Dawdling):
    """A source of which one part never answers."""

    def list_parts(self) -> list[str]:
        return ["slow", *(f"quick{n}" for n in range(5))]


def test_a_real_job_that_is_ended_says_which_part_it_was_at(spark: SparkSession, tmp_path: Path) -> None:
    sources = {"numbers": SourceSpec("numbers", Stuck(3600.0))}
    parts = {PartName("numbers", name): PartState() for name in Stuck(0.0).list_parts()}
    storage = Storage(tmp_path)
    ingestion = Ingestion(spark, "0001", sources, storage)
    ingestion.warm_up()
    # The one that was never asked comes first.
    asked = {name: 1 for name in parts if name.part != "slow"}
    with pytest.raises(PollsTooSlow) as caught:
        ingestion.poll("rows/ann", parts, replace(LIMITS, seconds=0.3), {}, asked, within=6.0)
    assert caught.value.slow == {PartName("numbers", "slow")}
    assert not [path for path, _ in storage.list() if path.endswith(".mark")]


def test_a_real_poll_that_never_returns_holds_up_no_neighbour(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream("stuck")
    stream.output("all", stream.source("numbers", Stuck(3600.0)), ParquetSink())
    station = Station(spark, stream, tmp_path, replace(STREAM, max_seconds=0.3))
    station.config = replace(station.config, cluster=SHORT)

    def parts() -> set[str]:
        return {row["part"] for row in station.queue().to_pylist()}

    try:
        station.start()
        station.until(lambda: len(parts()) == 5, "rows of all neighbours", 120)
        assert "slow" not in parts()
    finally:
        station.close()

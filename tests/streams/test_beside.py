"""Parts whose polls take longer than an epoch may: nothing waits for them, and their rows come, once.

Time is compressed: polls say how long they take, and no epoch may take longer than the time-out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.config import ClusterConfig
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Decision, Outcome
from penstock.errors import SourceFailed
from penstock.sinks import ParquetSink
from penstock.sources.base import Part, PartName, StatefulSource
from penstock.sources.state import State
from penstock.streams.api.stream import Stream, Timestamps
from penstock.streams.ingest.jobs.epoch_job import PollsTooSlow
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.journal_shuffle import NOTHING, ShuffleWork
from penstock.streams.ingest.pacing import Allowance
from penstock.streams.ingest.slow_polls import SlowPolls
from penstock.streams.ingest.worker import StreamWorker
from penstock.streams.model import PartState, Standing
from penstock.types.tables import Table
from tests.streams.fleet import STREAM
from tests.streams.owners import parts_of
from tests.streams.station import Station
from tests.streams.support import LAYOUT, LIMITS, Crew, MemoryIngestion, Scripted, all_of

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
            self._pass(max(took.values(), default=0.0), within)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return replace(super().poll(prefix, parts, limits, thresholds, asked), took=took)

    def collect(self, parts: Mapping[PartName, PartState], within: float | None = None) -> Polled:
        if within is not None:
            self._pass(max((self.crew.takes.get(name.part, 0.0) for name in parts), default=0.0), within)
        return super().collect(parts)

    def _pass(self, seconds: float, within: float) -> None:
        self.crew.clock.now += min(seconds, within)
        if seconds > within:
            raise PollsTooSlow("polls took too long")


class SlowCrew(Crew):
    """Members of whose parts some take long. No epoch may take longer than the time-out."""

    def __init__(self, *members: str, timestamps: Timestamps | None = None, **sources: Scripted) -> None:
        self.takes: dict[str, float] = {}
        self.errands: dict[str, tuple[float, Callable[[], object]]] = {}
        """By member, when a job beside the epochs is done, and what it does then."""
        self.besides: dict[str, Paced] = {}
        super().__init__(*members, list_every=0.0, timestamps=timestamps, **sources)

    def start(self, member: str) -> StreamWorker:
        ingestion, slow = (Paced(self.sources, self.storage) for _ in range(2))
        ingestion.crew = slow.crew = self

        def run(work: Callable[[], object]) -> None:
            self.errands[member] = self.clock.now + max(self.takes.values(), default=0.0), work

        beside = SlowPolls(slow, self.storage, LAYOUT, WITHIN, self.clock, run)
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
            beside,
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


def test_neighbours_that_were_suspected_are_polled_in_epochs_again() -> None:
    source = Scripted(slow=[1], a=[1, 2], b=[1, 2])
    source.endless = {"slow", "a", "b"}
    crew = SlowCrew("ann", s=source)
    crew.takes["slow"] = 20.0
    crew.epochs(3)
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
    source = Scripted(**{name: list(range(6)) for name in names})
    crew = SlowCrew("ann", "bob", s=source)
    for _ in range(120):
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


def test_a_real_poll_that_takes_three_time_outs(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream("dawdling")
    stream.output("all", stream.source("numbers", Dawdling(13.0)), ParquetSink())
    station = Station(spark, stream, tmp_path, replace(STREAM, max_seconds=0.3))
    cluster = ClusterConfig(lease_ttl=2.0, renew_every=0.5, member_ttl=3.0, barrier_timeout=4.0)
    station.config = replace(station.config, cluster=cluster)

    def numbers(part: str) -> list[int]:
        rows = station.queue().to_pylist()
        return [row["number"] for row in rows if row["part"] == part]

    try:
        station.start()
        station.until(lambda: len(numbers("slow")) >= 2, "rows of the slow part", 120)
        quick = numbers("quick")
        assert numbers("slow") == list(range(1, len(numbers("slow")) + 1))
        assert quick == list(range(1, len(quick) + 1))
        # It did not wait for its neighbour: it was polled more often, however busy the machine is.
        assert len(quick) > len(numbers("slow"))
    finally:
        station.close()

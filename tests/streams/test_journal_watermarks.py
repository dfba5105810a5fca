"""Watermarks of journals, whose queues count as parts, whoever owns them and whenever that changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.cluster.rules.assignment import part_owner
from penstock.control.cluster.rules.model import Seat
from penstock.journals import JournalWriter
from penstock.journals.shuffle.queues.keys import key_queues
from penstock.journals.shuffle.slices import slices
from penstock.sources import JournalSource
from penstock.streams.api.stream import SourceSpec, Timestamps
from penstock.streams.ingest.finished_parts import STATES
from penstock.streams.ingest.watermarks import latest
from penstock.streams.model import Pointer, Standing
from penstock.types.tables import Table
from tests.streams import journal_crew
from tests.streams.journal_crew import JournalCrew
from tests.streams.support import ROOMY

SECOND = 1_000_000
QUEUES = 4
A = "s/a/pivot=00"


class Timed(Table):
    id: int
    key: int
    at: datetime


def key_of(queue: int) -> int:
    """A key whose documents go to this queue."""
    batch = pa.RecordBatch.from_pydict({"key": pa.array(range(1000), pa.int64())})
    return int(list(key_queues(batch, ["/key"], QUEUES)).index(queue))


KEYS = [key_of(queue) for queue in range(QUEUES)]


class Place:
    """A folder with journals, and a crew that reads them."""

    def __init__(
        self, folder: Path, *members: str, idle_after: float | None = None, queues: int = QUEUES
    ) -> None:
        self.root = folder / "journals"
        self.root.mkdir()
        self.stamps = Timestamps("at", 0.0, "keep", idle_after=idle_after)
        source = self.source(queues)
        self.crew = JournalCrew(folder / "work", *members, timestamps=self.stamps, s=source)
        self.ids = count()

    def source(self, queues: int) -> JournalSource:
        return JournalSource(self.root, Timed, key=["/key"], queues=queues)

    def write(self, *rows: tuple[int, int], journal: Callable[[int], str] = lambda _: A) -> None:
        """Write rows of queues, each with its event time in seconds."""
        with JournalWriter(self.root, sync=False) as writer:
            for queue, at in rows:
                time = datetime.fromtimestamp(at, UTC).isoformat()
                writer.append(journal(queue), [{"id": next(self.ids), "key": KEYS[queue], "at": time}])

    def restart(self, *members: str) -> None:
        for member in list(self.crew.workers):
            self.crew.die(member)
        self.crew.seat(*members)

    @property
    def watermark(self) -> int | None:
        """What rows of the last epoch were judged by, in seconds."""
        found = latest(standing.watermark for standing in self.crew.standings()).get("s")
        return None if found is None else found // SECOND


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """One queue is behind the others, and holds the watermark back."""
    place = Place(tmp_path, "ann")
    place.write((0, 200), (1, 100), (2, 200), (3, 200))
    place.crew.epochs(5)
    assert place.watermark == 100
    return place


def go_on(place: Place) -> None:
    """The slow queue brings what is in order."""
    place.crew.cap = ROOMY
    place.write((1, 101), (1, 102))
    place.crew.epochs(4)
    assert place.crew.late() == []
    place.write((1, 150))
    place.crew.epochs(5)
    assert (place.crew.late(), place.watermark) == ([], 150)


@pytest.mark.parametrize("cap", [0, ROOMY])
@pytest.mark.parametrize("members", [("ann",), ("ann", "ben"), ("cleo",)])
def test_a_queue_that_is_behind_is_waited_for_after_a_restart(
    place: Place, members: tuple[str, ...], cap: int
) -> None:
    place.crew.cap = cap
    place.restart(*members)
    place.crew.epochs(4)
    assert place.watermark == 100
    go_on(place)


@pytest.mark.parametrize("cap", [0, ROOMY])
def test_a_queue_that_is_behind_is_waited_for_after_members_came_and_went(place: Place, cap: int) -> None:
    place.crew.cap = cap
    for members in (("ann", "ben"), ("ann", "ben", "cleo"), ("cleo",)):
        place.crew.move(*members)
        place.crew.fail()
        place.crew.epochs(3)
        assert place.watermark == 100
    go_on(place)


def test_states_from_before_queues_were_kept_are_read_and_all_queues_waited_for(place: Place) -> None:
    assert place.crew.decision is not None
    [standing] = place.crew.standings()
    assert standing.states is not None
    known = replace(standing.states.read(place.crew.storage, STATES), queues={})
    old = replace(standing, states=Pointer.write(place.crew.storage, "old.json", STATES, known))
    place.crew.decision = replace(place.crew.decision, frontiers={"ann": old.encode()})
    place.crew.cap = 0
    place.restart("ann")
    place.crew.epochs(4)
    assert place.watermark == 100
    place.crew.cap = ROOMY
    place.write((1, 101), (0, 200), (2, 200), (3, 200))
    place.crew.epochs(5)
    assert (place.crew.late(), place.watermark) == ([], 101)


@pytest.mark.parametrize("slow", range(QUEUES))
@pytest.mark.parametrize("queues", [2, 3, 8])
def test_keys_that_go_to_other_queues_than_before_are_waited_for(
    tmp_path: Path, queues: int, slow: int
) -> None:
    place = Place(tmp_path, "ann")
    place.write(*((queue, 100 if queue == slow else 200) for queue in range(QUEUES)))
    place.crew.epochs(5)
    place.crew.sources = {"s": SourceSpec("s", place.source(queues), place.stamps)}
    place.crew.cap = 0
    place.restart("ann")
    place.crew.epochs(4)
    assert place.watermark == 100
    place.crew.cap = ROOMY
    place.write((slow, 101))
    place.crew.epochs(4)
    assert place.crew.late() == []


def test_a_restart_does_not_wait_again_for_a_queue_that_is_idle(tmp_path: Path) -> None:
    place = Place(tmp_path, "ann", idle_after=60.0)
    place.write((0, 200))
    for _ in range(4):
        place.crew.epoch()
        place.crew.clock.now += 30.0
    place.crew.epochs(2)
    assert place.watermark == 200
    place.restart("ben")
    place.write((0, 300))
    place.crew.epochs(5)
    assert place.watermark == 300


def test_queues_become_idle_whoever_owns_the_journal(tmp_path: Path) -> None:
    members = [f"m{number}" for number in range(3)]
    place = Place(tmp_path, *members, idle_after=60.0)
    seats = [Seat(member, "") for member in members]
    reader = part_owner(seats, "s", A)
    assert {part_owner(seats, "s", f"queue {n}") for n in range(QUEUES)} - {reader}
    place.write((0, 200))
    place.crew.epochs(5)
    # From now on there is nothing to do but to wait.
    for _ in range(5):
        place.crew.clock.now += 30.0
        place.crew.epoch()
    assert place.watermark == 200


def test_a_queue_is_not_idle_while_nobody_may_read(tmp_path: Path) -> None:
    place = Place(tmp_path, "ann", idle_after=60.0)
    place.write((0, 200), (1, 100), (2, 200), (3, 200))
    place.crew.epochs(5)
    place.crew.cap = 0
    for _ in range(5):
        place.crew.clock.now += 30.0
        place.crew.epoch()
    place.crew.cap = ROOMY
    place.write((1, 101), (0, 201))
    place.crew.epochs(4)
    assert place.crew.late() == []


# what was not read, or is not visible yet


@pytest.fixture
def slow(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """One task reads little of the journals in an epoch, and a queue without rows is not waited for."""
    monkeypatch.setattr(journal_crew, "TASKS", 1)
    monkeypatch.setattr(slices, "BLOCK", 64 << 10)
    place.stamps = replace(place.stamps, idle_after=60.0)
    place.crew.sources = {"s": SourceSpec("s", place.source(QUEUES), place.stamps)}
    place.restart("ann", "ben")
    place.crew.epochs(2)
    return place


def pass_(place: Place, seconds: float) -> None:
    for _ in range(int(seconds // 20)):
        place.crew.clock.now += 20.0
        place.crew.epoch()


def test_a_queue_is_not_idle_while_its_rows_lie_behind_what_is_not_read_yet(slow: Place) -> None:
    with JournalWriter(slow.root, sync=False, roll_bytes=1 << 30) as writer:
        for second in range(200, 210):
            time = datetime.fromtimestamp(second, UTC).isoformat()
            row = {"key": KEYS[0], "at": time, "pad": "x" * 200}
            writer.append(A, [{"id": next(slow.ids), **row} for _ in range(2500)])
    slow.write((1, 101))
    pass_(slow, 100)
    newest = latest(standing.newest for standing in slow.crew.standings())["s"]
    assert 200 * SECOND < newest < 209 * SECOND  # it is at work
    assert slow.watermark == 100
    pass_(slow, 400)
    assert slow.crew.late() == []
    assert len(slow.crew.ids()) == 4 + 25_000 + 1
    # What nobody has anything for any more is not waited for.
    assert slow.watermark == 209


def test_a_queue_is_not_idle_while_its_rows_wait_for_a_transaction(slow: Place) -> None:
    other = "s/b/pivot=00"
    with JournalWriter(slow.root, sync=False) as writer:
        time = datetime.fromtimestamp(101, UTC).isoformat()
        with writer.transaction() as transaction:
            for journal in (A, other):
                transaction.append(journal, [{"id": next(slow.ids), "key": KEYS[1], "at": time}])
            with JournalWriter(slow.root, sync=False) as another:
                another.recover(transaction.prepare()[:1])
            pass_(slow, 300)
            assert slow.watermark == 100
    pass_(slow, 100)
    assert slow.crew.late() == []
    assert slow.crew.ids() == list(range(6))


def test_a_queue_that_is_idle_is_waited_for_again_while_there_is_a_backlog(slow: Place) -> None:
    pass_(slow, 200)
    assert slow.watermark == 200
    slow.write((0, 300))
    pass_(slow, 40)
    # This one was written before rows that are found first, in a journal that nobody knew.
    slow.write((1, 250), journal=lambda _: "s/new/pivot=00")
    slow.write((0, 310), (0, 320))
    pass_(slow, 200)
    assert slow.crew.late() == []
    assert slow.watermark == 320


# many interleavings

Story = list[tuple[str, int]]
MEMBERS = [("ann",), ("ann", "ben"), ("ben", "cleo"), ("ann", "ben", "cleo")]


def fill_or_empty_the_queue(place: Place, number: int) -> None:
    del number
    place.crew.cap = 0 if place.crew.cap else ROOMY


def wait(place: Place, number: int) -> None:
    place.crew.clock.now += number


ACTS: dict[str, Callable[[Place, int], object]] = {
    "epoch": lambda place, number: place.crew.epochs(min(number, 3)),
    "abort": lambda place, _: place.crew.fail(),
    "move": lambda place, number: place.crew.move(*MEMBERS[number % 4]),
    "die": lambda place, number: place.restart(*MEMBERS[number % 4]),
    "wait": wait,
    "full": fill_or_empty_the_queue,
}
acts = st.tuples(st.sampled_from(["write", "write", "epoch", "epoch", *ACTS]), st.integers(1, 5))
stories = st.lists(acts, min_size=5, max_size=25)
rows = st.lists(st.tuples(st.integers(0, QUEUES - 1), st.integers(0, 90)), min_size=1, max_size=20)


def play(place: Place, coming: list[tuple[int, int]], story: Story, journal: Callable[[int], str]) -> None:
    def write(number: int) -> None:
        place.write(*coming[:number], journal=journal)
        del coming[:number]

    for act, number in story:
        if act == "write":
            write(number)
        else:
            ACTS[act](place, number)
    place.crew.cap = ROOMY
    write(len(coming))
    for _ in range(7):
        place.crew.clock.now += 5.0
        place.crew.epoch()
    assert place.crew.late() == []
    marks = [Standing.decode(text).watermark for each in place.crew.chain for text in each.frontiers.values()]
    each = [mark["s"] for mark in marks if "s" in mark]
    assert each == sorted(each)


@settings(max_examples=12, deadline=None)
@given(rows, stories)
def test_no_row_that_is_in_order_within_its_queue_is_ever_late(
    gaps: Sequence[tuple[int, int]], story: Story
) -> None:
    """Queues run far apart, and nobody gives one up."""
    now = dict.fromkeys(range(QUEUES), 10)
    coming = []
    for queue, gap in gaps:
        now[queue] += gap
        coming.append((queue, now[queue]))
    with TemporaryDirectory() as folder:
        place = Place(Path(folder), "ann", "ben")
        play(place, list(coming), story, lambda queue: f"s/j{queue % 2}/pivot=00")
        assert place.crew.ids() == list(range(len(coming)))
        is_waiting = {queue for queue, _ in coming} != set(now)
        assert place.watermark == (None if is_waiting else min(now.values()))


@settings(max_examples=8, deadline=None)
@given(rows, stories, st.sampled_from([0.0, 3.0]), st.integers(1, 3))
def test_no_row_that_was_written_in_order_is_late_and_nobody_waits_for_ever(
    gaps: Sequence[tuple[int, int]], story: Story, idle_after: float, journals: int
) -> None:
    times = sorted(10 + at for _, at in gaps)
    coming = [(queue, at) for (queue, _), at in zip(gaps, times, strict=True)]
    with TemporaryDirectory() as folder:
        place = Place(Path(folder), "ann", "ben", idle_after=idle_after)
        play(place, list(coming), story, lambda queue: f"s/j{queue % journals}/pivot=00")
        assert place.crew.ids() == list(range(len(coming)))
        assert place.watermark == times[-1]

"""Sources that fail in each of their methods.

There is a clear word about it, nothing is lost or comes twice, and it goes on when the cause is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.control.cluster.rules.assignment import part_owner
from penstock.control.cluster.rules.model import Seat
from penstock.sinks import FunctionSink, ParquetSink
from penstock.sinks.base import Target, Writer
from penstock.sources import RateSource
from penstock.streams.api.stream import Stream
from penstock.streams.views.events import StreamEvent
from tests.streams.fleet import misfits, uneven_misfits, with_settings
from tests.streams.jobs import moody
from tests.streams.station import Station

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP = 20


class Patient(Station):
    """The stream of a moody source."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._moods = folder / "moods"
        self._moods.mkdir()
        self._rows = 0
        self._known = 0
        self.offer()
        stream = Stream("moody")
        stream.output("all", stream.source("moody", moody.Moody(self._moods)), ParquetSink())
        super().__init__(spark, stream, folder)

    def offer(self) -> None:
        """Let every part have more rows."""
        self._rows += STEP
        self._write("rows", str(self._rows))

    def end(self) -> None:
        self._write("end", "")

    @contextmanager
    def mood(self, method: str, how: str = "raise") -> Iterator[None]:
        """The source misbehaves within the block."""
        self._known = len(self.events)
        self._write(method, how)
        try:
            yield
        finally:
            (self._moods / method).unlink()

    def complaint(self, *words: str) -> StreamEvent:
        """Wait for a problem, told since the mood came up, that has all these words."""
        found: StreamEvent = self.until(
            lambda: next((e for e in self.events[self._known :] if _complains(e, words)), None),
            f"a problem about {words}",
        )
        return found

    def wrong(self, rows: pa.Table) -> str:
        return uneven_misfits(rows, dict.fromkeys(moody.PARTS, self._rows))

    def settle(self) -> None:
        """Wait until all that was offered is in the queue, and nothing else."""
        self.until(lambda: self.queue().num_rows >= len(moody.PARTS) * self._rows, "all rows")
        assert self.wrong(self.queue()) == ""

    def _write(self, name: str, text: str) -> None:
        new = self._moods / f"{name}.new"
        new.write_text(text)
        new.rename(self._moods / name)


def _complains(event: StreamEvent, words: tuple[str, ...]) -> bool:
    return event.kind == "problem" and all(word in event.text for word in words)


@pytest.fixture(scope="module")
def patient(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    """One stream that every test makes suffer and lets recover."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(moody)  # type: ignore[no-untyped-call]
    patient = Patient(spark, tmp_path_factory.mktemp("moody"))
    patient.start()
    patient.settle()
    yield patient
    patient.close()
    cloudpickle.unregister_pickle_by_value(moody)  # type: ignore[no-untyped-call]


def test_a_failing_list_of_parts_names_the_source_and_the_method(patient: Patient) -> None:
    with patient.mood("list_parts"):
        patient.offer()
        patient.complaint("source moody: list_parts failed: ValueError: in a bad mood")
    patient.settle()


@pytest.mark.parametrize("method", ["poll", "is_finished", "snapshot", "suspend"])
def test_a_failing_part_is_named_with_its_method(patient: Patient, method: str) -> None:
    with patient.mood(method):
        patient.offer()
        patient.complaint(f"source moody, part 'b': {method} failed: ValueError: in a bad mood at {method}")
    patient.settle()


def test_a_part_that_cannot_be_built_is_named(patient: Patient) -> None:
    with patient.mood("poll"):
        patient.offer()
        patient.complaint("poll failed")
        # A part that failed is closed, and must be built again.
        with patient.mood("build_part"):
            patient.complaint("source moody, part 'b': build_part failed: ValueError: in a bad mood")
    patient.settle()


def test_a_part_that_cannot_be_closed_does_not_hide_why_it_was(patient: Patient) -> None:
    with patient.mood("close"):
        with patient.mood("poll"):
            patient.offer()
            patient.complaint("source moody, part 'b': poll failed")
        patient.settle()


def test_a_passing_fault_passes(patient: Patient) -> None:
    with patient.mood("poll", "transient"):
        patient.offer()
        patient.complaint("TransientError: source moody, part 'b': poll failed: the line is busy")
    patient.settle()


def test_a_state_that_cannot_be_encoded_is_named_with_its_part_and_type(patient: Patient) -> None:
    with patient.mood("snapshot", "object"):
        patient.offer()
        patient.complaint("the state of part 'moody/b' cannot be encoded: state['next'] is of type object")
    patient.settle()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("too many", ["SourceFailed", "rows"]),
        ("wrong type", ["TypeMismatch", "seven"]),
        ("unknown field", ["SourceFailed", "'colour', which the table does not"]),
        ("null", ["NullInField", "number"]),
        ("no rows", ["SourceFailed", "poll returned int"]),
    ],
)
def test_a_poll_that_brings_what_it_must_not_is_named(patient: Patient, what: str, words: list[str]) -> None:
    with patient.mood("poll", what):
        patient.offer()
        patient.complaint("source moody, part 'b'", "poll", *words)
    patient.settle()


def test_parts_that_cannot_be_collected_stay_until_they_can(patient: Patient) -> None:
    with patient.mood("collect"):
        patient.start(next(name for name in ("i2", "i3", "i4") if takes(name, "b")))
        patient.complaint("source moody, part 'b': collect failed: ValueError: in a bad mood")
        patient.offer()
        patient.settle()
        assert patient.seats() == 1
    patient.until(lambda: patient.seats() == 2, "both have a seat")
    patient.offer()
    patient.settle()


def takes(member: str, part: str) -> bool:
    """Whether a part moves to this member when it joins the first one."""
    return part_owner((Seat("i1", ""), Seat(member, "")), "moody", part) == member


def test_after_all_this_the_stream_ends_with_every_row_once(patient: Patient) -> None:
    patient.offer()
    patient.end()
    patient.until(lambda: "i1" in patient.endings, "the end")
    patient.until(lambda: set(patient.endings.values()) == {"ended"}, "the end for all")
    assert patient.wrong(patient.queue()) == ""
    assert patient.wrong(patient.output("all")) == ""


@dataclass(frozen=True)
class Sluice(FunctionSink):
    """A sink that cannot be reached until it is opened."""

    opened: threading.Event = field(default_factory=threading.Event)

    def open(self, target: Target) -> Writer:
        self.opened.wait()
        return FunctionSink.open(self, target)


def test_a_full_queue_slows_down_and_goes_on_when_rows_were_taken(
    spark: SparkSession, tmp_path: Path
) -> None:
    taken: list[pa.Table] = []
    sluice = Sluice(lambda rows, _: taken.append(rows.toArrow()))
    stream, parts, count = Stream("narrow"), 2, 1200
    stream.output("below", stream.source("ticks", RateSource(parts=parts, rows=count)), sluice)
    # Whatever nobody needs goes at once.
    settings = with_settings(max_rows=200, queue_bytes=40_000, retain_for=0.0, retain_bytes=0)
    station = Station(spark, stream, tmp_path, settings)
    station.start()
    try:
        check_standstill(station, parts * count)
        # The first batch takes all that is in the queue.
        sluice.opened.set()
        station.until(lambda: station.endings, "the end")
    finally:
        sluice.opened.set()
        station.close()
    assert misfits(pa.concat_tables(taken), parts, count) == ""
    assert station.told("problem") == []


def check_standstill(station: Station, rows: int) -> None:
    """Epochs go on without rows while the queue is full."""
    cap = station.config.stream.queue_bytes
    station.until(lambda: station.log.size() >= cap * 0.9, "a full queue")
    seen = len(station.told("epoch"))
    station.until(lambda: stands_still(station.told("epoch")[seen:]), "epochs without rows")
    assert station.log.size() < cap * 1.5
    assert station.log.view().rows < rows


def stands_still(epochs: list[StreamEvent]) -> bool:
    return len(epochs) >= 5 and all(epoch.values["rows"] == 0 for epoch in epochs[-3:])

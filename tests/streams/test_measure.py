"""How many rows polls are asked for, and which parts come first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.sources.base import Part, PartName, StatefulSource
from penstock.sources.state import State
from penstock.storage import Storage
from penstock.streams.api.stream import SourceSpec
from penstock.streams.ingest.jobs.epoch_job import _by_waiting
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits, PollTask
from penstock.streams.ingest.jobs.intake import Intake
from penstock.streams.ingest.jobs.open_parts import OpenParts, Ticket
from penstock.streams.ingest.jobs.poll_watch import PollWatch
from penstock.types.tables import Table


class Texts(Table):
    text: str


class Endless(Part):
    """Brings as many rows as it is asked for, of one size."""

    def __init__(self, size: int, asked: list[int]) -> None:
        self._size = size
        self._asked = asked

    def poll(self, limit: int) -> pa.RecordBatch:
        self._asked.append(limit)
        return pa.record_batch({"text": ["x" * self._size] * limit})

    def snapshot(self) -> State:
        return 1


class Wide(StatefulSource):
    table = Texts

    def __init__(self, size: int) -> None:
        self.asked: list[int] = []
        self._size = size

    def list_parts(self) -> Iterable[str]:
        return ["a", "b"]

    def build_part(self, part: str, state: State) -> Part:
        del part, state
        return Endless(self._size, self.asked)


def fill(root: Path, source: Wide, limits: PollLimits, parts: Sequence[str] = ("a",)) -> Intake:
    sources, storage = {"s": SourceSpec("s", source)}, Storage(root)
    tickets = tuple(Ticket(PartName("s", part), None) for part in parts)
    task = PollTask("0001", sources, (tickets,), limits, {}, storage, "rows", None)
    with OpenParts("0001", sources) as open_parts, Intake(storage, "rows", None, {}) as intake:
        task._fill(open_parts, intake, tickets, PollWatch())
    return intake


def test_the_first_poll_of_a_source_that_nobody_read_is_small(tmp_path: Path) -> None:
    source = Wide(1)
    fill(tmp_path, source, PollLimits(200_000, 1 << 30, 60.0))
    assert source.asked[:2] == [1024, 65_536]


@pytest.mark.parametrize("parts", [("a",), ("a", "b")])
def test_wide_rows_do_not_go_far_beyond_the_limit(tmp_path: Path, parts: Sequence[str]) -> None:
    source, limit = Wide(1000), 20_000_000
    intake = fill(tmp_path, source, PollLimits(10_000_000, limit, 60.0), parts)
    assert source.asked[0] == 1024
    assert limit * 0.95 < intake.bytes < limit * 1.05


def test_what_is_known_of_the_size_holds_from_the_first_poll_on(tmp_path: Path) -> None:
    source = Wide(100_000)
    intake = fill(tmp_path, source, PollLimits(1_000_000, 1_000_000, 60.0, {"s": 100_004.0}))
    assert source.asked[0] == 9
    assert intake.bytes < 1_200_000


def test_one_row_is_asked_for_at_the_least(tmp_path: Path) -> None:
    source = Wide(100)
    fill(tmp_path, source, PollLimits(1000, 50, 60.0, {"s": 1e9}))
    assert source.asked == [1]


def test_those_that_waited_longest_come_first() -> None:
    names = [PartName("s", part) for part in "abcd"]
    share = tuple(Ticket(name, None) for name in names)
    ordered = _by_waiting(share, dict(zip(names, [7, 5, 7], strict=False)))
    assert [ticket.name.part for ticket in ordered] == ["d", "b", "a", "c"]

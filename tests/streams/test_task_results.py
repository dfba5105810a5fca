"""What tasks hand to the driver arrives there as it was, and several tasks add up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.journals.shuffle.queues.run_files import QueueRun, RunFile
from penstock.journals.shuffle.visibility.frontier import Frontier, Mark
from penstock.sources import RateSource
from penstock.sources.base import PartName
from penstock.storage import FileRecord, Storage
from penstock.streams.api.stream import SourceSpec
from penstock.streams.ingest.jobs.epoch_tasks import CollectTask, PollLimits, PollTask
from penstock.streams.ingest.jobs.open_parts import Ticket
from penstock.streams.ingest.jobs.task_results import SCHEMA, Polled, TaskResult, polled
from penstock.streams.model import PartState, RowFile

RECORD = FileRecord("a/b", 3, 100, "00" * 32)
A, B = PartName("s", "a"), PartName("s", "b/ü\ud800")
FULL = TaskResult(
    {A: PartState("[1]"), B: PartState(None, True)},
    (RowFile("s", RECORD), RowFile("s", RECORD, late=True, newest=17)),
    {A: -5},
    {"s": (4, 40)},
    (RunFile("s", 7, RECORD, (QueueRun(0, 0, 2, 10, 12),)),),
    Frontier({"j": (Mark(3, 4, 5, 6),)}),
    12,
    frozenset([A]),
    {B: 2**40},
    frozenset([A, B]),
    {A: 0.25},
)


def test_a_result_arrives_as_it_was() -> None:
    assert TaskResult.decode(FULL.encode()) == FULL
    assert TaskResult.decode(TaskResult({}).encode()) == TaskResult({})


def test_results_add_up() -> None:
    other = TaskResult({PartName("t", "c"): PartState("2")}, (), {}, {"s": (1, 60), "t": (2, 8)}, read=3)
    found = polled([FULL, other])
    assert found.sizes == {"s": 20.0, "t": 4.0}
    assert found.states == {**FULL.states, **other.states}
    assert (found.files, found.runs, found.progress, found.read) == (FULL.files, FULL.runs, FULL.progress, 15)
    assert (found.unasked, found.unfinished) == (FULL.unasked, FULL.unfinished)
    assert (found.behind, found.took, found.newest) == (FULL.behind, FULL.took, FULL.newest)
    assert polled([]) == Polled({})


def test_tasks_yield_one_row_for_each_seed(tmp_path: Path) -> None:
    sources = {"s": SourceSpec("s", RateSource(rows=10, parts=2))}
    names = sorted(sources["s"].source.list_parts())
    shares = tuple((Ticket(PartName("s", name), None),) for name in names)
    limits = PollLimits(100, 1 << 20, 10.0)
    seeds = pa.record_batch({"id": [0, 1]})
    poll = PollTask("0001", sources, shares, limits, {}, Storage(tmp_path), "rows", None)
    for task in (poll, CollectTask("0001", sources, shares)):
        answers = list(task(iter([seeds])))
        assert [(each.schema, each.num_rows) for each in answers] == [(SCHEMA, 1)] * 2
        found = polled(TaskResult.decode(each["result"][0].as_py()) for each in answers)
        assert [name.part for name in found.states] == names

"""Run files, and merging their runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadState, StorageFull
from penstock.journals.shuffle.queues.merging import Load, merged
from penstock.journals.shuffle.queues.run_files import (
    Commits,
    QueueRun,
    RunFile,
    RunWriter,
    Settled,
    commits_by_group,
    group_id,
    without_hidden,
)
from penstock.storage import Storage


def settled(
    clocks: list[int], queues: list[int] | None = None, names: list[str] | None = None, group: int = 5
) -> Settled:
    count = len(clocks)
    rows = pa.RecordBatch.from_pydict({"name": pa.array(names or [f"n{c}" for c in clocks], pa.string())})
    return Settled(
        rows,
        np.array(clocks, np.uint64),
        np.full(count, group, np.uint64),
        np.array(clocks, np.uint64),
        np.array(queues or [0] * count, np.uint64),
    )


def run_of(clocks: list[int], number: int) -> pa.RecordBatch:
    columns = [pa.array([f"{number}.{n}" for n in range(len(clocks))], pa.string())]
    columns += [pa.array(clocks, pa.uint64())] * 3
    return pa.RecordBatch.from_arrays(columns, ["name", "_clock", "_group", "_commit"])


def names(batches: list[pa.RecordBatch]) -> list[str]:
    return [name for batch in batches for name in batch.column(0).to_pylist()]


@given(st.lists(st.lists(st.integers(0, 30), max_size=12).map(sorted), max_size=8))
def test_runs_merge_to_the_sorted_whole(runs: list[list[int]]) -> None:
    """Of equal clocks, the run that begins first comes first, and rows keep their order."""
    loads = [
        Load(clocks[0] if clocks else 0, lambda number=number, clocks=clocks: run_of(clocks, number))  # type: ignore[misc]
        for number, clocks in enumerate(runs)
    ]
    wanted = sorted(
        (clock, clocks[0], number, place)
        for number, clocks in enumerate(runs)
        for place, clock in enumerate(clocks)
    )
    assert names(list(merged(loads))) == [f"{number}.{place}" for _, _, number, place in wanted]


class Counted:
    """Runs that know how many of them are in memory."""

    def __init__(self, runs: list[list[int]]) -> None:
        self.runs = runs
        self.read: list[int] = []

    def loads(self) -> list[Load]:
        def read(number: int) -> Callable[[], pa.RecordBatch]:
            def now() -> pa.RecordBatch:
                self.read.append(number)
                return run_of(self.runs[number], number)

            return now

        return [Load(clocks[0], read(number)) for number, clocks in enumerate(self.runs)]


def test_runs_of_different_times_are_not_held_at_once() -> None:
    counted = Counted([[10 * n, 10 * n + 3, 10 * n + 9] for n in reversed(range(50))])
    shown = 0
    for batch in merged(counted.loads()):
        shown += batch.num_rows
        assert len(counted.read) * 3 - shown <= 0, "a run was read before its time"
    assert counted.read == list(reversed(range(50)))


def test_a_run_is_read_when_its_first_row_may_be_next() -> None:
    counted = Counted([[0, 100], [50, 60], [200, 210], [100, 105]])
    found = merged(counted.loads())
    next(found)
    assert counted.read == [0]
    assert next(found).num_rows == 2
    assert counted.read == [0, 1]
    next(found)
    assert counted.read == [0, 1, 3]
    list(found)
    assert counted.read == [0, 1, 3, 2]


def test_runs_that_came_out_empty_are_passed_over() -> None:
    loads = [Load(5, lambda: run_of([], 0)), Load(7, lambda: run_of([7], 1)), Load(9, lambda: run_of([], 2))]
    assert names(list(merged(loads))) == ["1.0"]
    assert list(merged([])) == []


def test_many_rows_come_in_portions() -> None:
    many = 70_000
    loads = [
        Load(0, lambda: run_of(list(range(0, 2 * many, 2)), 0)),
        Load(1, lambda: run_of(list(range(1, 2 * many, 2)), 1)),
    ]
    found = list(merged(loads))
    assert len(found) > 2
    clocks = [clock for batch in found for clock in batch.column(1).to_pylist()]
    assert clocks == list(range(2 * many))


def test_a_file_has_one_run_for_each_queue_in_the_order_of_clocks(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    with RunWriter(storage, "runs/1-a", 1, None) as writer:
        writer.add("orders", settled([50, 20, 40, 10], [1, 0, 1, 0]))
        writer.add("orders", settled([60], [1]))
        writer.add("orders", settled([]))
        writer.add("payments", settled([7], [2]))
    orders, payments = writer.written
    assert (orders.source, orders.epoch, orders.record.rows) == ("orders", 1, 5)
    assert orders.runs == (QueueRun(0, 0, 2, 10, 20), QueueRun(1, 1, 2, 40, 50), QueueRun(2, 1, 1, 60, 60))
    assert orders.of_queue(1) == (QueueRun(1, 1, 2, 40, 50), QueueRun(2, 1, 1, 60, 60))
    assert payments.record.path == "runs/1-a-payments.arrow"
    for file in (orders, payments):
        storage.check(file.record)
    with storage.open(orders.record.path) as opened:
        batch = pa.ipc.open_file(opened).get_batch(1)
        assert without_hidden(batch).to_pydict() == {"name": ["n40", "n50"]}


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_equal_clocks_keep_their_order(tmp_path: Path, codec: str | None) -> None:
    storage = Storage(tmp_path)
    given = [f"{n}" for n in range(100)]
    with RunWriter(storage, "r", 1, codec) as writer:
        writer.add("s", settled([n // 10 for n in range(100)], names=given))
    with storage.open(writer.written[0].record.path) as opened:
        assert pa.ipc.open_file(opened).get_batch(0).column(0).to_pylist() == given


def test_a_slice_that_writes_nothing_leaves_no_file(tmp_path: Path) -> None:
    with RunWriter(Storage(tmp_path), "r", 1, None) as writer:
        pass
    assert writer.written == []
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with RunWriter(Storage(tmp_path), "runs/r", 1, None) as writer:
            writer.add("one", settled([1]))
            writer.add("two", settled([1]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_that_cannot_be_ended_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def fail() -> None:
        with RunWriter(Storage(tmp_path), "r", 1, None) as writer:
            writer.add("one", settled([1]))
            writer.add("two", settled([1]))
            monkeypatch.setattr("penstock.storage._LocalSink._put", full)

    with pytest.raises(StorageFull):
        fail()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_fields_of_a_table_may_be_called_as_our_own_columns(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    rows = pa.RecordBatch.from_pydict({"_clock": ["a", "b"], "_group": ["c", "d"]})
    numbers = np.array([2, 1], np.uint64)
    with RunWriter(storage, "r", 1, None) as writer:
        writer.add("s", Settled(rows, numbers, numbers, numbers, np.zeros(2, np.uint64)))
    with storage.open(writer.written[0].record.path) as opened:
        batch = pa.ipc.open_file(opened).get_batch(0)
    (shown,) = merged([Load(1, lambda: batch)])
    assert without_hidden(shown).to_pydict() == {"_clock": ["b", "a"], "_group": ["d", "c"]}
    assert Commits.of([(2, 2)]).covers(batch).tolist() == [False, True]


def with_commits(pairs: list[tuple[int, int]]) -> pa.RecordBatch:
    groups, commits = [p[0] for p in pairs], [p[1] for p in pairs]
    columns = [pa.array(each, pa.uint64()) for each in ([0] * len(pairs), groups, commits)]
    return pa.RecordBatch.from_arrays(columns, ["_clock", "_group", "_commit"])


NUMBERS = st.sampled_from([0, 1, 2, 5, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])


@given(st.dictionaries(NUMBERS, NUMBERS), st.lists(st.tuples(NUMBERS, NUMBERS), max_size=10))
def test_commits_cover_their_groups_up_to_their_clocks(
    commits: dict[int, int], pairs: list[tuple[int, int]]
) -> None:
    covered = Commits.of(commits.items())
    assert bool(covered) == bool(commits)
    wanted = [group in commits and commit <= commits[group] for group, commit in pairs]
    assert covered.covers(with_commits(pairs)).tolist() == wanted


def test_a_group_is_a_producer_in_a_journal() -> None:
    assert group_id("a/b", 5) != group_id("a/b", 6)
    assert group_id("a/b", 5) != group_id("a/c", 5)
    # Run files of one version are read by the next.
    assert group_id("orders/a/pivot=00", 1 << 40) == 15938206706491632616
    covered = commits_by_group({("a/b", 5): 10, ("a/c", 5): 20})
    pairs = [(group_id("a/b", 5), 10), (group_id("a/b", 5), 11), (group_id("a/c", 5), 20), (1, 1)]
    assert covered.covers(with_commits(pairs)).tolist() == [True, False, True, False]


def a_file(tmp_path: Path) -> RunFile:
    with RunWriter(Storage(tmp_path), "r", 3, None) as writer:
        writer.add("s", settled([1, (1 << 64) - 1], [0, 1]))
    return writer.written[0]


def test_a_run_file_survives_json(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    assert RunFile.from_json(json.loads(json.dumps(file.to_json()))) == file


@pytest.mark.parametrize(
    "change",
    [
        lambda body: None,
        lambda body: [],
        lambda body: {},
        lambda body: body | {"more": 1},
        lambda body: body | {"source": 3},
        lambda body: body | {"epoch": -1},
        lambda body: body | {"epoch": "1"},
        lambda body: body | {"record": None},
        lambda body: body | {"record": {"path": "x"}},
        lambda body: body | {"record": body["record"] | {"bytes": 1.5}},
        lambda body: body | {"record": body["record"] | {"path": None}},
        lambda body: body | {"runs": {}},
        lambda body: body | {"runs": [1]},
        lambda body: body | {"runs": [[0, 0, 1, 1]]},
        lambda body: body | {"runs": [[0, 0, 1, 1, 1 << 64]]},
        lambda body: body | {"runs": [[0, -1, 1, 1, 1]]},
        lambda body: body | {"runs": [[True, 0, 1, 1, 1]]},
    ],
)
def test_anything_else_is_a_bad_state(change: Callable[[dict[str, Any]], Any], tmp_path: Path) -> None:
    with pytest.raises(BadState):
        RunFile.from_json(change(a_file(tmp_path).to_json()))

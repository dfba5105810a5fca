"""What a queue shows of run files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import CorruptFile
from penstock.journals.shuffle.queues.queues import Show, documents
from penstock.journals.shuffle.queues.run_files import Commits, RunFile, RunWriter, Settled, group_id
from penstock.journals.shuffle.visibility.coordinator import Promotion
from penstock.storage import Storage

ONE, TWO = ("s/a", 1), ("s/b", 1)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def written(
    storage: Storage, name: str, rows: list[tuple[int, tuple[str, int]]], queue: int = 0, each: int = 100
) -> RunFile:
    """A file with these clocks, which are the commits too, and groups; in runs of so many rows."""
    with RunWriter(storage, name, 1, None) as writer:
        for begin in range(0, len(rows), each):
            part = rows[begin : begin + each]
            clock = np.array([row[0] for row in part], np.uint64)
            group = np.array([group_id(*row[1]) for row in part], np.uint64)
            batch = pa.RecordBatch.from_pydict({"clock": clock})
            writer.add("s", Settled(batch, clock, group, clock, np.full(len(part), queue, np.uint64)))
    return writer.written[0]


def shown(storage: Storage, *promotions: Promotion, queue: int = 0) -> list[int]:
    shows = Show.each(promotions)
    return [clock for batch in documents(storage, shows, queue) for clock in batch.column(0).to_pylist()]


def test_files_are_merged_in_the_order_of_clocks(storage: Storage) -> None:
    one = written(storage, "1", [(n, ONE) for n in range(0, 30, 3)], each=2)
    two = written(storage, "2", [(n, TWO) for n in range(1, 30, 3)], each=3)
    assert shown(storage, Promotion(one), Promotion(two)) == sorted([*range(0, 30, 3), *range(1, 30, 3)])
    assert shown(storage) == []


def test_each_queue_gets_its_own(storage: Storage) -> None:
    one, two = written(storage, "1", [(1, ONE)], 0), written(storage, "2", [(2, ONE)], 1)
    files = Promotion(one), Promotion(two)
    assert [shown(storage, *files, queue=queue) for queue in range(3)] == [[1], [2], []]


def test_what_was_shown_before_is_left_out(storage: Storage) -> None:
    file = written(storage, "1", [(1, ONE), (2, TWO), (3, ONE), (4, TWO), (5, ONE)])
    assert shown(storage, Promotion(file, skip={ONE: 3})) == [2, 4, 5]
    assert shown(storage, Promotion(file, skip={ONE: 9, TWO: 9})) == []


def test_what_is_shown_ahead_is_all_that_is_shown(storage: Storage) -> None:
    file = written(storage, "1", [(1, ONE), (2, TWO), (3, ONE), (4, TWO), (5, ONE)])
    assert shown(storage, Promotion(file, ahead={ONE: 3})) == [1, 3]
    assert shown(storage, Promotion(file, skip={ONE: 1}, ahead={ONE: 3, TWO: 2})) == [2, 3]
    assert shown(storage, Promotion(file, ahead={})) == []


def test_files_are_open_only_while_they_are_needed(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [written(storage, f"{n}", [(10 * n + k, ONE) for k in range(6)], each=2) for n in range(20)]
    opened: list[pa.NativeFile] = []
    real = Storage.open

    def watched(self: Storage, path: str) -> Any:
        opened.append(real(self, path))
        return opened[-1]

    monkeypatch.setattr(Storage, "open", watched)
    most = 0
    for _ in documents(storage, [Show(file, Commits.of(()), None) for file in files], 0):
        most = max(most, sum(not file.closed for file in opened))
    assert most <= 1
    assert len(opened) == 20
    assert all(file.closed for file in opened)


def test_a_reader_that_stops_early_leaves_nothing_open(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(storage, "1", [(n, ONE) for n in range(6)], each=2)
    opened: list[pa.NativeFile] = []
    real = Storage.open

    def watched(self: Storage, path: str) -> Any:
        opened.append(real(self, path))
        return opened[-1]

    monkeypatch.setattr(Storage, "open", watched)
    found = documents(storage, Show.each([Promotion(file)]), 0)
    assert isinstance(found, Iterator)
    first = next(found)
    found.close()  # type: ignore[attr-defined]
    assert [file.closed for file in opened] == [True]
    assert first.column(0).to_pylist() == [0, 1]


def test_a_missing_file_is_told(storage: Storage) -> None:
    file = written(storage, "1", [(1, ONE)])
    storage.delete(file.record.path)
    with pytest.raises(CorruptFile, match=r"1-s\.arrow is missing"):
        shown(storage, Promotion(file))


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_file_that_was_cut_off_is_told(storage: Storage, tmp_path: Path, kept: int) -> None:
    file = written(storage, "1", [(n, ONE) for n in range(100)])
    path = tmp_path / file.record.path
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CorruptFile, match=r"1-s\.arrow has \d+ bytes, not"):
        shown(storage, Promotion(file))


def test_a_file_with_other_bytes_is_told(storage: Storage, tmp_path: Path) -> None:
    file = written(storage, "1", [(n, ONE) for n in range(100)])
    path = tmp_path / file.record.path
    path.write_bytes(b"x" * file.record.bytes)
    with pytest.raises(CorruptFile, match="checksum"):
        shown(storage, Promotion(file))


def test_the_file_of_somebody_else_is_told(storage: Storage, tmp_path: Path) -> None:
    file, other = written(storage, "1", [(1, ONE), (2, ONE)]), written(storage, "2", [(1, ONE)])
    (tmp_path / other.record.path).replace(tmp_path / file.record.path)
    with pytest.raises(CorruptFile):
        shown(storage, Promotion(file))


def test_a_failure_of_the_disk_is_not_taken_for_a_broken_file(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(storage, "1", [(1, ONE)])

    def fail(self: Storage, path: str) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Storage, "open", fail)
    with pytest.raises(OSError, match="Too many open files"):
        shown(storage, Promotion(file))

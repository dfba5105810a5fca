"""What a run does with its inputs: files cut anywhere, changed, or replaced by others."""

from __future__ import annotations

import os
import threading

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import InputChanged, RunMismatch
from tests.runner import trades
from tests.runner.conftest import Place, until


def test_a_changed_input_halts_before_anything_is_lost(place: Place) -> None:
    place.run(max_batches=1)
    stat = place.input.stat()
    place.input.write_bytes(place.input.read_bytes() + b"x")
    with pytest.raises(InputChanged, match=r"trades\.parquet"):
        place.run()
    place.input.write_bytes(place.input.read_bytes()[:-1])
    os.utime(place.input, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert place.run().ending == "complete"
    place.assert_exact()


def test_an_input_that_changes_while_it_is_read_halts_the_run(place: Place) -> None:
    place.block(0)
    runner = place.runner(claims=1)
    reports: list[ps.Report] = []
    thread = threading.Thread(target=lambda: reports.append(runner.run()))
    thread.start()
    until(lambda: place.reached(0), "partition 0 is at work")
    place.input.write_bytes(place.input.read_bytes() + b"x")
    place.unblock(0)
    thread.join(60)
    assert reports[0].ending == "halted"
    assert reports[0].error is not None
    assert reports[0].error.code == "input-changed"
    assert not any(view.attempts for view in place.board.partitions())


def test_another_input_under_the_same_run_is_refused(place: Place) -> None:
    place.run(max_batches=1)
    other = place.path / "other.parquet"
    trades.make_input(other, rows=2000)
    place.register(source=other, rows=500, replace=True)
    with pytest.raises(RunMismatch, match="another input trades"):
        place.run()
    assert place.run(run="second").ending == "complete"


@pytest.mark.parametrize("sizes", [(1000, 1000, 1000, 1000), (700, 1300, 10, 1990), (4000,)])
def test_a_folder_of_files_cut_on_and_off_their_bounds(place: Place, sizes: tuple[int, ...]) -> None:
    folder = place.path / "folder"
    folder.mkdir()
    begin = 0
    for number, size in enumerate(sizes):
        pq.write_table(place.table.slice(begin, size), folder / f"{number}.parquet")
        begin += size
    place.register("folder", folder, rows=2000)
    report = place.run(inputs={"trades": "folder"})
    assert (report.ending, report.acked) == ("complete", 2)
    place.assert_exact()

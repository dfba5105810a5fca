"""Files of a result: attempts that run twice, and what a dead process left."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from penstock.server.engine.faults import translated
from penstock.server.engine.registry import new_id
from penstock.server.engine.results.backpressure import HALT
from penstock.server.engine.results.spool import ResultSpool, SpoolWriter, sweep
from penstock.spark.faults import WorkerFault
from penstock.storage import Storage
from servers.seaweed import Seaweed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Task:
    """What a task knows of itself."""

    def __init__(self, part: int, attempt: int) -> None:
        self.partitionId, self.taskAttemptId = lambda: part, lambda: attempt


def write(
    monkeypatch: pytest.MonkeyPatch,
    root: Path | str,
    part: int,
    attempt: int,
    rows: int,
    piece: int = 1 << 20,
) -> list[str]:
    """Run one task here: the pieces that it says its partition has."""
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Task(part, attempt))
    batches = (pa.RecordBatch.from_pydict({"n": [n]}) for n in range(rows))
    [answer] = SpoolWriter(str(root), "q", piece)(batches)
    assert answer.column(0).to_pylist() == [part]
    pieces: list[str] = json.loads(answer.column(1)[0].as_py())
    return pieces


def test_the_first_attempt_counts_and_a_second_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = ResultSpool(str(tmp_path), "q")
    first = write(monkeypatch, tmp_path, 0, 7, 3)
    second = write(monkeypatch, tmp_path, 0, 8, 5)
    assert first == second == ["part-00000-7-0.arrow"]
    assert sorted(f.name for f in (tmp_path / "q").iterdir()) == ["part-00000", "part-00000-7-0.arrow"]
    rows = [batch.column(0)[0].as_py() for batch in spool.batches(lambda _: True)]
    assert rows == [0, 1, 2]
    # What was sent is deleted; that it was there is remembered.
    assert [f.name for f in (tmp_path / "q").iterdir()] == ["part-00000"]
    spool.delete()
    assert not (tmp_path / "q").exists()


def test_partitions_are_read_in_order_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = ResultSpool(str(tmp_path), "q")
    write(monkeypatch, tmp_path, 1, 1, 2)
    waits: list[float] = []

    def check(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 1:
            write(monkeypatch, tmp_path, 0, 2, 0)
        return len(waits) > 2

    assert [batch.column(0)[0].as_py() for batch in spool.batches(check)] == [0, 1]
    assert len(waits) == 3


def test_pieces_are_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ResultSpool(str(tmp_path), "q")
    assert len(write(monkeypatch, tmp_path, 0, 1, 10, piece=500)) > 1


def test_old_results_are_swept_and_new_ones_stay(tmp_path: Path) -> None:
    old, new = f"{1:011x}aaaaaa", new_id()
    for name in (old, new, "other"):
        (tmp_path / name).mkdir()
    sweep(str(tmp_path))
    assert sorted(f.name for f in tmp_path.iterdir()) == sorted([new, "other"])
    sweep(str(tmp_path / "nowhere"))


def test_on_an_object_store_rows_are_read_when_the_job_has_ended(
    s3: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    endpoint = urlsplit(s3.endpoint).netloc
    root = f"s3://{s3.bucket}/{new_id()}?region=us-east-1&scheme=http&endpoint_override={endpoint}"
    spool = ResultSpool(root, "q")

    class Server:
        """Runs a query as a whole."""

        __module__ = "pyspark.sql.connect.session"

    class Job:
        """Two tasks, one of them run twice, as Spark hands back what they say."""

        sparkSession = Server()  # noqa: N815

        def mapInArrow(self, task: SpoolWriter, _: str) -> Job:  # noqa: N802
            return self

        def collect(self) -> list[dict[str, object]]:
            write(monkeypatch, root, 1, 3, 4)
            pieces = {part: write(monkeypatch, root, part, part, 2) for part in (1, 0)}
            return [{"part": part, "pieces": json.dumps(names)} for part, names in pieces.items()]

    def check(_: float) -> bool:
        spool.fill(cast("DataFrame", Job()))
        return True

    assert [batch.column(0)[0].as_py() for batch in spool.batches(check)] == [0, 1, 0, 1]
    spool.delete()
    assert Storage(root).list() == []


def test_a_partition_that_finds_no_room_is_read_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = ResultSpool(str(tmp_path), "q")
    halt = tmp_path / "q" / HALT
    halt.write_text("0")
    writer = threading.Thread(target=write, args=(monkeypatch, tmp_path, 0, 7, 5))
    writer.start()
    found = spool.batches(lambda _: not writer.is_alive())
    assert next(found).column(0).to_pylist() == [0]
    assert writer.is_alive()
    # Another attempt, after rows were sent, could send others: it must not go on.
    with pytest.raises(WorkerFault) as raised:
        write(monkeypatch, tmp_path, 0, 8, 5)
    told = translated(raised.value)
    assert told.sqlstate == "40001" and told.hint == "run the query again"
    halt.unlink()
    assert [batch.column(0)[0].as_py() for batch in found] == [1, 2, 3, 4]
    writer.join()
    assert spool.part == 1
    spool.delete()
    assert list(tmp_path.iterdir()) == []


def test_partitions_that_are_not_read_yet_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = ResultSpool(str(tmp_path), "q")
    halt = tmp_path / "q" / HALT
    halt.write_text("0")

    def work() -> None:
        with suppress(WorkerFault):
            write(monkeypatch, tmp_path, 1, 1, 3)

    later = threading.Thread(target=work)
    later.start()
    while spool.size() == 0 and not list((tmp_path / "q").glob("*.arrow")):
        time.sleep(0.01)
    assert later.is_alive() and not (tmp_path / "q" / "part-00001.begun").exists()
    # When nobody wants the result any more, whoever waits ends.
    spool.delete()
    later.join(10)
    assert not later.is_alive()


def test_what_fills_the_disk_may_be_later_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = ResultSpool(str(tmp_path), "q")
    write(monkeypatch, tmp_path, 1, 1, 3)
    # Nothing makes room but the reader, who needs the partition that is being written.
    (tmp_path / "q" / HALT).write_text("0")
    writer = threading.Thread(target=write, args=(monkeypatch, tmp_path, 0, 2, 4))
    writer.start()
    rows = [batch.column(0)[0].as_py() for batch in spool.batches(lambda _: not writer.is_alive())]
    assert rows == [0, 1, 2, 3, 0, 1, 2]
    writer.join()

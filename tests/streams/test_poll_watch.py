"""Tasks say which parts take long: with their result, and by marks for those who cannot wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.sources import RateSource
from penstock.sources.base import PartName
from penstock.storage import FileWriter, Storage
from penstock.streams.api.stream import SourceSpec
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits, PollTask
from penstock.streams.ingest.jobs.open_parts import Ticket
from penstock.streams.ingest.jobs.poll_watch import PollWatch, delete_marks, marked
from penstock.streams.ingest.jobs.task_results import Polled, TaskResult, polled

if TYPE_CHECKING:
    import pytest

A, B, C = (PartName("s", name) for name in "abc")


class Uphill(Storage):
    """A storage that takes its time for each file of rows."""

    during: Callable[[], object] = staticmethod(lambda: time.sleep(0.4))

    @contextmanager
    def create(self, path: str) -> Iterator[FileWriter]:
        with super().create(path) as sink:
            yield sink
            if path.endswith(".arrow"):
                self.during()


def run(storage: Storage, mark_after: float | None = None) -> Polled:
    """What a task brings that polls one part."""
    sources = {"s": SourceSpec("s", RateSource(rows=10, parts=1))}
    (part,) = sources["s"].source.list_parts()
    shares = ((Ticket(PartName("s", part), None),),)
    limits = PollLimits(100, 1 << 20, 10.0)
    task = PollTask("0001", sources, shares, limits, {}, storage, "rows/x", None, (), mark_after)
    answers = task(iter([pa.record_batch({"id": [0]})]))
    return polled(TaskResult.decode(each["result"][0].as_py()) for each in answers)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_upload_that_takes_long_counts_for_those_whose_rows_it_has(tmp_path: Path) -> None:
    (seconds,) = run(Uphill(tmp_path)).took.values()
    assert seconds >= 0.4
    assert not run(Storage(tmp_path)).took


def test_an_upload_that_takes_long_leaves_a_mark_until_it_is_done(tmp_path: Path) -> None:
    storage = Uphill(tmp_path)
    found: list[frozenset[PartName]] = []

    def during() -> None:
        until(lambda: marked(storage, "rows/x"))
        found.append(marked(storage, "rows/x"))

    storage.during = during
    states = run(storage, mark_after=0.05).states
    assert found == [frozenset(states)]
    assert [path.rpartition(".")[2] for path, _ in storage.list()] == ["arrow"]


def test_a_call_that_takes_long_is_marked_once_and_others_are_not(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    with PollWatch(storage, "rows/own-0-7", 0.2) as watch:
        with watch.call(A):
            pass
        with watch.call(B, C):
            until(lambda: marked(storage, "rows/own"))
            time.sleep(0.3)
            assert len(storage.list("rows")) == 1
            assert marked(storage, "rows/own") == {B, C}
            assert not marked(storage, "rows/ow")
    assert not storage.list("rows")
    assert watch.took.keys() == {B, C}


def test_a_mark_goes_with_the_call_that_it_belongs_to(tmp_path: Path) -> None:
    """Otherwise a part would be called slow because of another one that comes after it."""
    storage = Storage(tmp_path)
    with PollWatch(storage, "rows/own-0-7", 0.02) as watch:
        with watch.call(A):
            until(lambda: marked(storage, "rows/own") == {A})
        with watch.call(B):
            until(lambda: marked(storage, "rows/own") == {B})
        until(lambda: not storage.list("rows"))
        with watch.call(B, C):
            until(lambda: marked(storage, "rows/own") == {B, C})
    assert not storage.list("rows")


def test_marks_of_a_task_that_was_ended_are_deleted_by_the_instance(tmp_path: Path) -> None:
    storage, released = Storage(tmp_path), threading.Event()

    def task() -> None:
        with PollWatch(storage, "rows/own-0-7", 0.01) as watch, watch.call(A):
            released.wait(10)

    thread = threading.Thread(target=task)
    thread.start()
    until(lambda: marked(storage, "rows/own"))
    delete_marks(storage, "rows/own")
    assert not storage.list("rows")
    released.set()
    thread.join()


def test_a_storage_that_fails_costs_the_mark_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(Storage, "write", fail)
    monkeypatch.setattr(Storage, "delete", fail)
    with PollWatch(Storage(tmp_path), "rows/own-0-7", 0.01) as watch, watch.call(A):
        until(lambda: watch._marks)
    assert watch._marks == 1

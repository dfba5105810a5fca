"""A place for a run, runners in this process, and instances in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.batch.runner.events import Event
from penstock.batch.runs import runs
from penstock.control.claims import Board
from tests.batch.runner import trades

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
RUN = "runner-trades"


def until(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Wait for a condition; the value it became true with."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {seconds} s: {what}")


class Child:
    """An instance process."""

    def __init__(self, place: Place, name: str, failpoints: str, options: dict[str, Any]) -> None:
        environ = {**os.environ, "PENSTOCK_TEST_HOOKS": str(place.hooks), "PENSTOCK_FAILPOINTS": failpoints}
        given = json.dumps({"store": place.url, **options})
        command = [sys.executable, "-m", "tests.batch.runner.child", str(place.path), name, given]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self, seconds: float = 120) -> int:
        return self.process.wait(seconds)

    def report(self) -> dict[str, Any]:
        """What the instance said at its end."""
        out, err = self.process.communicate(timeout=120)
        lines = out.splitlines()
        assert self.process.returncode == 0 and lines, f"ended with {self.process.returncode}: {err[-3000:]}"
        report: dict[str, Any] = json.loads(lines[-1])
        return report

    def state(self) -> str:
        """The process state as the kernel tells it: T is stopped."""
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Place:
    """Store, storage, input and hooks of one test."""

    def __init__(self, path: Path, spark: SparkSession, store: str | None = None) -> None:
        self.path = path
        self.url = store or f"sqlite:///{path}/store.db"
        self.spark = spark
        self.hooks = path / "hooks"
        self.hooks.mkdir()
        self.input = path / "trades.parquet"
        self.table: pa.Table = trades.make_input(self.input)
        self.store = ps.open_store(self.url)
        self.storage = ps.Storage(path / "storage")
        self.children: list[Child] = []
        self.events: list[Event] = []
        self.register()

    def register(
        self, name: str = "trades", source: Path | None = None, *, rows: int = trades.PARTITION, **more: Any
    ) -> None:
        ps.register(
            None,
            self.store,
            self.storage,
            name,
            str(source or self.input),
            partition_rows=rows,
            table_schema=trades.Trades.input_schema(),
            **more,
        )

    def runner(self, pipeline: ps.Pipeline = trades.pipeline, **options: Any) -> ps.Runner:
        config = ps.RunnerConfig(**{"instance": "here", "lease_ttl": 2.0, **options})
        return ps.Runner(
            pipeline, self.store, self.storage, config, spark=self.spark, listener=self.events.append
        )

    def run(self, **options: Any) -> ps.Report:
        return self.runner(**options).run()

    def child(self, name: str = "child", failpoints: str = "", **options: Any) -> Child:
        child = Child(self, name, failpoints, options)
        self.children.append(child)
        return child

    def run_until_checkpoint(self, stages: int) -> None:
        """Leave partition 0 behind as an instance does that dies after ``stages`` stages."""
        runner = self.runner(max_batches=1, claims=1)
        with pytest.MonkeyPatch.context() as patch:
            left = stages

            def save(*arguments: Any) -> None:
                nonlocal left
                original(*arguments)
                left -= 1
                if not left:
                    raise ps.FencedError("as good as dead")

            original = Board.save_checkpoint
            patch.setattr(Board, "save_checkpoint", save)
            patch.setattr(runner, "_give_slots", lambda _: None)
            runner.run()
        self.events.clear()

    @property
    def board(self) -> Board:
        return runs.board(self.store, RUN)

    def block(self, partition: int) -> None:
        (self.hooks / f"block-{partition}").touch()

    def unblock(self, partition: int) -> None:
        (self.hooks / f"block-{partition}").unlink()

    def reached(self, partition: int) -> bool:
        return (self.hooks / f"reached-{partition}").exists()

    def seen(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def assert_exact(self, run: str = RUN) -> None:
        """The published output is what it has to be, row by row, and proves it."""
        rows, totals = trades.expected(self.table)
        output = ps.Output(self.store, run)
        assert output.arrow("trades").sort_by("id").to_pylist() == rows
        merged: dict[str, dict[str, Any]] = {}
        for part in output.arrow("positions").to_pylist():
            total = merged.setdefault(
                part["symbol"], {"symbol": part["symbol"], "trades": 0, "notional": 0.0}
            )
            total["trades"] += part["trades"]
            total["notional"] += part["notional"]
        assert sorted(merged.values(), key=lambda t: str(t["symbol"])) == totals
        proof = ps.verify(self.store, run)
        assert proof.ok, proof


@contextmanager
def opened(path: Path, spark: SparkSession, store: str | None = None) -> Iterator[Place]:
    """A place whose processes and store are gone when the block ends."""
    cloudpickle.register_pickle_by_value(trades)  # type: ignore[no-untyped-call]
    place = Place(path, spark, store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_TEST_HOOKS", str(place.hooks))
        yield place
    for child in place.children:
        child.end()
    place.store.close()


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Iterator[Place]:
    with opened(tmp_path, spark) as place:
        yield place

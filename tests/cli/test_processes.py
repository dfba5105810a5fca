"""The program as people use it: real processes, real Spark, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.batch.runs import runs
from penstock.cli import exits
from penstock.control.claims import Board, PartitionState
from penstock.store import open_store

TOML = """
[run]
partition_rows = 250
claims = 1
lease_ttl = "4s"
[spark]
master = "local[1]"
memory = "512m"
fast_start = true
"""
# The second stage waits as long as the file `hold` is there: signals find it in the middle.
PIPELINE = """
from __future__ import annotations
import os
import time
import pyarrow as pa
from penstock import Pipeline, Table, arrow_transform, derived
from sibling import twice
HOLD = {hold!r}
class Rows(Table):
    n: int
    double: int = derived()
    more: int = derived()
@arrow_transform(reads=Rows.n, writes=Rows.double)
def double(rows):
    return pa.RecordBatch.from_pydict({{"double": twice(rows["n"])}})
@arrow_transform(reads=Rows.double, writes=Rows.more)
def more(rows):
    while os.path.exists(HOLD):
        time.sleep(0.05)
    return pa.RecordBatch.from_pydict({{"more": twice(rows["double"])}})
pipeline = Pipeline("rows", inputs=Rows, outputs=Rows, transforms=[double, more])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "penstock.toml").write_text(TOML)
    (tmp_path / "rows.py").write_text(PIPELINE.format(hold=str(tmp_path / "hold")))
    (tmp_path / "sibling.py").write_text(
        "import pyarrow.compute as pc\ndef twice(x):\n    return pc.multiply(x, 2)\n"
    )
    (tmp_path / "rows.csv").write_text("n\n" + "\n".join(map(str, range(1000))) + "\n")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the program; what still runs at the end of a test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


def wait_until(folder: Path, ready: Callable[[Board], bool], process: subprocess.Popen[str]) -> None:
    """Wait until the board of run `rows` looks as wanted."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if (folder / ".penstock/store.db").exists():
            with open_store(f"sqlite:///{folder}/.penstock/store.db") as store:
                if store.get("runs/rows/run") and ready(runs.board(store, "rows")):
                    return
        time.sleep(0.1)
    raise AssertionError(f"it did not come so far: {finish(process)[2]}")


def in_second_stage(board: Board) -> bool:
    return any(v.checkpoints for v in board.partitions({PartitionState.CLAIMED}))


def result(out: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(out)
    return value


def test_stop_resume_verify_export(folder: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    (folder / "hold").touch()
    process = start("run", "rows.py", "--input", "rows=rows.csv", "--output", "out", "--json")
    wait_until(folder, in_second_stage, process)
    # As a terminal does: Ctrl-C reaches every process of the group, Spark's JVM too.
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = finish(process)
    assert code == exits.RESUMABLE, err
    assert result(out)["ending"] == "interrupted"
    assert "next: penstock runs resume rows" in err
    assert "Traceback" not in err
    with open_store(f"sqlite:///{folder}/.penstock/store.db") as store:
        summary = runs.board(store, "rows").summary()
        assert summary.claimed.partitions == 0, "a claim was not given back"
        assert summary.failures == 0

    (folder / "hold").unlink()
    code, out, err = finish(start("runs", "resume", "rows", "--json"))
    assert code == exits.COMPLETE, err
    assert result(out)["instances"][0]["resumed"] == 1
    assert "goes on after stage 0" in err
    assert "rows: 4/4 partitions" in err

    code, out, err = finish(start("runs", "verify", "rows"))
    assert (code, out.splitlines()[-1]) == (0, "verified: 1,000 rows in; out: 1,000 rows"), err
    code, out, err = finish(start("runs", "export", "rows", "plain"))
    assert code == 0, err
    rows = pq.read_table(folder / "plain/rows")
    assert sorted(rows["more"].to_pylist()) == [4 * n for n in range(1000)]


def test_two_instances_one_of_which_is_killed(
    folder: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    (folder / "hold").touch()
    process = start("run", "rows.py", "--input", "rows=rows.csv", "--instances", "2", "--json")

    def both(board: Board) -> bool:
        owners = {v.owner for v in board.partitions({PartitionState.CLAIMED}) if v.checkpoints}
        return {name.partition("-")[0] for name in owners} == {"a", "b"}

    wait_until(folder, both, process)
    os.kill(_child_of(process.pid), signal.SIGKILL)
    (folder / "hold").unlink()
    code, out, err = finish(process)
    assert code == exits.COMPLETE, err
    told = result(out)
    assert [lost.split(": ")[1] for lost in told["lost_instances"]] == ["killed by SIGKILL"]
    assert len(told["instances"]) == 1
    assert told["instances"][0]["resumed"] == 1
    assert "the others take over its partitions" in err


def _child_of(pid: int) -> int:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    return max(int(line.split()[0]) for line in listed.splitlines() if line.split()[1] == str(pid))

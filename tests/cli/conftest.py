"""A project in a folder of its own, and the program without a process around it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakValueDictionary

import pytest

from penstock.batch.runs import runs
from penstock.batch.runs.manifests import Fingerprint, StagePrint
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board
from penstock.core.clocks import wall_clock
from penstock.project import load
from penstock.store import open_store
from tests.cli.members import FAST, Cluster
from tests.cli.program import Cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    monkeypatch.chdir(tmp_path)
    # Projects of several tests name their pipelines alike, which one process would refuse.
    monkeypatch.setattr("penstock.batch.pipeline.pipeline._named", WeakValueDictionary())
    path, modules = list(sys.path), set(sys.modules)
    yield Cli(tmp_path)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if (file := getattr(sys.modules[name], "__file__", None)) and file.startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def project(cli: Cli) -> Cli:
    """What `penstock init` makes."""
    result = cli("init", "--no-archive")
    assert result.exit_code == 0, result.output
    return cli


@pytest.fixture
def run(project: Cli) -> Cli:
    """A run `trades` of four partitions: one completed, one poisoned, one claimed, one untouched."""
    from penstock.batch import inputs
    from penstock.storage import Storage

    source = load("trades.py")
    storage = Storage(project.folder / ".penstock/storage")
    with open_store(f"sqlite:///{project.folder}/.penstock/store.db") as store:
        table = source.pipeline.inputs[0]
        made = inputs.register(
            None,
            store,
            storage,
            "trades.trades",
            "data/trades.csv",
            partition_rows=500,
            table_schema=table.input_schema(),
        )
        stages = tuple(StagePrint("+".join(s.names), "c0de", "") for s in source.pipeline.stages)
        record = Run(
            name="trades",
            id="0",
            pipeline="trades",
            inputs={"trades": made.digest},
            registered={"trades": "trades.trades"},
            total_rows=made.total_rows,
            partition_rows=500,
            outputs=("trades", "volumes"),
            output=str(project.folder / "output"),
            output_format="parquet",
            fingerprint=Fingerprint({"trades": made.digest}, stages),
            storage=storage.root,
            created=wall_clock("seconds"),
            source=source.source,
        )
        _, board = runs.start(store, record, max_failures=5, accept_changed_code=False)
        _fill(board, project)
    return project


def _fill(board: Board, project: Cli) -> None:
    session = board.store.session(60)
    first, second, _ = board.claim(session, "a", 3)
    board.ack(first, "0" * 32)
    board.poison(second.range, "ValueError: the price is missing")


@pytest.fixture
def cluster(cli: Cli) -> Iterator[Cluster]:
    """A cluster with short times on the embedded store, whose members are processes."""
    cluster = Cluster(cli)
    cluster.configure(**FAST)
    yield cluster
    cluster.end()

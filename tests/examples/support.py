"""Runs an example as its users would: loaded from its file, over files, with a store of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import penstock as ps
from penstock.batch.runner import verify
from penstock.batch.runner.events import Event
from penstock.project import Project, load

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def generator(example: str) -> ModuleType:
    """The module that makes an example's data."""
    spec = importlib.util.spec_from_file_location(f"generate_{example}", EXAMPLES / example / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Example:
    """An example and one run of it."""

    def __init__(self, name: str, path: Path, inputs: Mapping[str, Path], partition_rows: int) -> None:
        self.source = f"{EXAMPLES / name / 'pipeline.py'}"
        self.project: Project = load(self.source)
        self.path = path
        self.inputs = inputs
        self.partition_rows = partition_rows
        self.store = ps.open_store(f"sqlite:///{path}/store.db")
        self.storage = ps.Storage(path / "storage")
        self.events: list[Event] = []

    @property
    def pipeline(self) -> ps.Pipeline:
        return self.project.pipeline

    def register(self) -> None:
        for table in self.pipeline.inputs:
            name = table.__table_name__
            ps.register(
                None,
                self.store,
                self.storage,
                name,
                str(self.inputs[name]),
                partition_rows=self.partition_rows,
                table_schema=table.input_schema(),
            )

    def run(self, spark: SparkSession, **options: Any) -> ps.Report:
        """Work on the run in this process until it ends."""
        config = ps.RunnerConfig(**{"instance": "here", "lease_ttl": 3.0, **options})
        runner = ps.Runner(
            self.pipeline, self.store, self.storage, config, spark=spark, listener=self.events.append
        )
        return runner.run(self.project.factory)

    def run_from_command_line(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Work on the run in a process of its own."""
        given = [f"--input={name}={path}" for name, path in self.inputs.items()]
        return subprocess.run(
            [
                *(sys.executable, "-m", "penstock", "run", self.source, *given, *arguments),
                f"--partition-rows={self.partition_rows}",
            ],
            cwd=self.path,
            env={
                **os.environ,
                "PENSTOCK_STORE": f"sqlite:///{self.path}/store.db",
                "PENSTOCK_STORAGE": str(self.path / "storage"),
                "PENSTOCK_SPARK_MASTER": "local[1]",
                "PENSTOCK_SPARK_FAST_START": "true",
                **environ,
            },
            capture_output=True,
            text=True,
            timeout=120,
        )

    def output(self, table: str) -> pa.Table:
        return ps.Output(self.store, self.pipeline.name).arrow(table)

    def check_verified(self) -> None:
        found = verify(self.store, self.pipeline.name)
        assert found.ok, found.checks

    def resumed(self) -> dict[str, int]:
        """The stage at which each resumed partition went on."""
        return {str(e.partition): e.stage or 0 for e in self.events if e.kind == "resumed"}


def rows(table: pa.Table | Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows in a fixed order, to be compared whole."""
    found = table if not hasattr(table, "to_pylist") else table.to_pylist()
    return sorted(tuple(sorted((k, _key(v)) for k, v in row.items())) for row in found)


def _key(value: Any) -> Any:
    return "" if value is None else value.isoformat() if hasattr(value, "isoformat") else value

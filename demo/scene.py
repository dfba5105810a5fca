"""The scene: a directory with trades, a project file, and the job that two instances share."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import penstock as ps
from penstock.config import Config, load
from penstock.project import Project
from penstock.project import load as load_project
from penstock.store import Store
from penstock.workers.run_job import RunJob

EXAMPLE = Path(__file__).parents[1] / "examples" / "trades"
NAMES = ("north", "south")

_SETTINGS = """\
# Made by the demo.
store = "sqlite:///store.db"
storage = "storage"

[run]
partition_rows = {partition_rows}
lease_ttl = "3s"
checkpoint = "every-stage"
# So few rows would be exchanged in memory, by one claim.
small_bytes = 0

[spark]
master = "local[1]"
memory = "1g"
fast_start = true
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything is in place, and nothing has run yet."""

    folder: Path
    rows: int
    project: Project
    config: Config

    @property
    def run(self) -> str:
        return self.project.pipeline.name

    @property
    def trades(self) -> Path:
        return self.folder / "trades.parquet"

    @property
    def log(self) -> Path:
        """What the instances and their Spark write to stderr."""
        return self.folder / "instances.log"

    def jobs(self) -> list[RunJob]:
        job = RunJob(
            source=self.project.source,
            run=self.run,
            instance="",
            store=self.config.store,
            storage=self.config.storage,
            settings=self.config.run,
            spark=self.config.spark,
        )
        return [replace(job, instance=name) for name in NAMES]


def prepare(folder: Path, rows: int, partitions: int) -> Scene:
    """An empty directory for the demo, but for its project file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / ".gitignore").write_text("*\n")
    settings = folder / "penstock.toml"
    settings.write_text(_SETTINGS.format(partition_rows=-(-rows // partitions)))
    return Scene(folder, rows, load_project(str(EXAMPLE / "pipeline.py")), load(settings, environ={}))


def make_trades(scene: Scene) -> None:
    _generator().write(scene.trades, scene.rows)


def register(scene: Scene, store: Store) -> None:
    [table] = scene.project.pipeline.inputs
    ps.register(
        None,
        store,
        ps.Storage(scene.config.storage),
        table.__table_name__,
        str(scene.trades),
        partition_rows=scene.config.run.partition_rows,
        table_schema=table.input_schema(),
    )


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_trades", EXAMPLE / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

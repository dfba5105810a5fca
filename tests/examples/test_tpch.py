"""TPC-H as pipelines: what the runner publishes is what DuckDB answers to the text of the query.

The inputs are cut into several partitions each, and nothing is small enough to be left to one claim, so that
rows really go through exchanges.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import penstock as ps
from penstock.batch.inputs import Input
from penstock.batch.pipeline.check import check_pipeline
from penstock.batch.pipeline.execute import resources_by_stage
from penstock.batch.pipeline.needs import cut_pipeline
from penstock.batch.pipeline.phases import ByKeys, ByRows, Phases
from penstock.control.claims import Board
from penstock.project import load, load_pipeline
from tests.examples.support import EXAMPLES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCALE = "0.01"
FILE = EXAMPLES / "tpch" / "queries.py"
README = EXAMPLES / "tpch" / "README.md"
TEXTS = Path(__file__).parents[1] / "sql" / "tpch"
PARTITION_ROWS = {"lineitem": 25_000, "orders": 8_000, "customer": 800, "part": 1_200, "partsupp": 5_000}
"""Two or three partitions of each input that is not small."""
NAMES = [f"q{number}" for number in range(1, 23)]
ALONE = ("q3", "q6", "q13")
"""Joins by two keys one after the other, sums of each partition, and a left join."""
CONFIG = ps.RunnerConfig(instance="here", small_bytes=0, whole_bytes=50_000)
"""Suppliers, nations and regions are given whole, as at scale factor 10 with the default settings."""


class Data:
    """Files, and the inputs that are made of them once for all queries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        program = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run(
            [program, "parquet", "-s", SCALE, "--output-dir", path], check=True, capture_output=True
        )
        self.store = ps.open_store(f"sqlite:///{path}/store.db")
        self.storage = ps.Storage(path / "storage")
        self.duck = duckdb.connect()
        self.inputs: dict[str, Input] = {}
        for table in load_pipeline(f"{FILE}:tpch").inputs:
            name = table.__table_name__
            file = f"{path / name}.parquet"
            self.inputs[name] = ps.register(
                None,
                self.store,
                self.storage,
                name,
                file,
                partition_rows=PARTITION_ROWS.get(name, 1_000_000),
                table_schema=table.input_schema(),
            )
            self.duck.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{file}')")

    def run(self, spark: SparkSession, name: str) -> ps.Pipeline:
        project = load(f"{FILE}:{name}")
        report = ps.Runner(project.pipeline, self.store, self.storage, CONFIG, spark=spark).run()
        assert (report.ending, report.failed) == ("complete", 0)
        return project.pipeline

    def answer(self, name: str) -> list[tuple[Any, ...]]:
        """DuckDB's."""
        return self.duck.execute((TEXTS / f"q{int(name[1:]):02}.sql").read_text()).fetchall()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPCH_SCALE", SCALE)
        yield Data(tmp_path_factory.mktemp("tpch"))


def check_same(made: pa.Table, theirs: list[tuple[Any, ...]]) -> None:
    ours = [tuple(row.values()) for row in made.to_pylist()]
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert len(one) == len(other)
        assert all(same(a, b) for a, b in zip(one, other, strict=True)), (one, other)


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, Decimal) and isinstance(theirs, float):
        # DuckDB divides decimals as doubles: ours is that number, with so many digits.
        last = Decimal(1).scaleb(int(ours.as_tuple().exponent))
        return abs(ours - Decimal(theirs)) <= last / 2 + Decimal(abs(theirs) * 1e-12)
    return bool(ours == theirs)


@pytest.fixture(scope="module")
def answered(data: Data, spark: SparkSession) -> ps.Output:
    """All queries in one run."""
    data.run(spark, "tpch")
    return ps.Output(data.store, "tpch")


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_that_of_duckdb(data: Data, answered: ps.Output, name: str) -> None:
    check_same(answered.arrow(_output(name)), data.answer(name))


@pytest.mark.parametrize("name", ALONE)
def test_a_query_runs_by_itself(data: Data, spark: SparkSession, name: str) -> None:
    data.run(spark, name)
    check_same(ps.Output(data.store, name).arrow(_output(name)), data.answer(name))


def _output(name: str) -> str:
    (table,) = load_pipeline(f"{FILE}:{name}").outputs
    return table.__table_name__


def test_rows_are_cut_into_several_partitions_and_key_ranges(data: Data, answered: ps.Output) -> None:
    for number, phase in enumerate(answered.run.every_phase):
        parts = Board.open(data.store, answered.run.place(number)).summary().total.partitions
        assert (parts == 1) == (phase.cut == "everything"), (phase, parts)


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_tells_how_it_is_cut(data: Data, spark: SparkSession, name: str) -> None:
    pipeline = load_pipeline(f"{FILE}:{name}")
    checked = check_pipeline(spark, pipeline, resources_by_stage(pipeline.stages, pipeline.resources, {}))
    sizes = {t: registered.size for t, registered in data.inputs.items() if t in _inputs(pipeline)}
    phases = cut_pipeline(pipeline, checked, sizes, small=CONFIG.whole_bytes, as_one=CONFIG.small_bytes)
    assert _told(name, phases) in README.read_text().splitlines()


def _inputs(pipeline: ps.Pipeline) -> set[str]:
    return {t.__table_name__ for t in pipeline.inputs}


def _told(name: str, phases: Phases) -> str:
    """The line of the README's table for a query."""
    rows, keys, everything = [], [], []
    for phase in phases:
        named = ", ".join(f"`{n}`" for stage in phase.stages for n in stage.names)
        whole = f" with all of {', '.join(sorted(phase.whole))}" if phase.whole else ""
        if isinstance(phase.partitioning, ByRows):
            rows.append(f"{phase.partitioning.table}: {named}" if named else phase.partitioning.table)
        elif isinstance(phase.partitioning, ByKeys):
            columns = phase.partitioning.columns
            key = " = ".join(" + ".join(columns[table]) for table in sorted(columns))
            keys.append(f"{key}: {named}{whole}")
        else:
            everything.append(named)
    cells = (name[1:], ", ".join(rows), "; ".join(keys), ", ".join(everything))
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")

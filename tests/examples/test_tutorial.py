"""The tutorial's two programs compute the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from penstock import Dataset
from penstock.project import load_pipeline
from tests.examples.support import generator, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


def program(name: str) -> str:
    """The code block that begins with a comment of this name."""
    [found] = re.findall(rf"```python\n(# {re.escape(name)}\n.*?)```", TUTORIAL.read_text(), re.DOTALL)
    return str(found)


def test_a_plain_job_and_its_durable_form_compute_the_same(tmp_path: Path, spark: SparkSession) -> None:
    generator("trades").write(tmp_path / "trades.parquet", 2_000)
    plain = program("job.py").replace('parquet("', f'parquet("{tmp_path}/')
    exec(compile(plain, "job.py", "exec"), {})

    (tmp_path / "trades.py").write_text(program("trades.py"))
    pipeline = load_pipeline(str(tmp_path / "trades.py"))
    pipeline.check(spark)
    assert [s.names for s in pipeline.stages] == [("valid",), ("value",), ("volumes",)]
    made = pipeline.run_on(
        Dataset({"trades": spark.read.parquet(str(tmp_path / "trades.parquet"))}), spark=spark
    )

    assert rows(made["volumes"].toArrow()) == rows(pq.read_table(tmp_path / "plain" / "volumes"))
    written = pq.read_table(tmp_path / "plain" / "trades", columns=made["trades"].columns)
    assert rows(made["trades"].toArrow()) == rows(written)

"""What `penstock` exports, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock

EXPORTED = [
    "Auto",
    "Dataset",
    "EveryNStages",
    "EveryStage",
    "FencedError",
    "Never",
    "Output",
    "PenstockError",
    "Pipeline",
    "Precision",
    "Range",
    "Report",
    "Resource",
    "Retry",
    "Runner",
    "RunnerConfig",
    "SparkConfig",
    "Storage",
    "Store",
    "Stream",
    "StreamHandle",
    "Table",
    "TerminalError",
    "Timestamp",
    "TransientError",
    "arrow_transform",
    "derived",
    "everything",
    "open_store",
    "partition",
    "register",
    "start_spark",
    "transform",
    "verify",
]


def test_the_exported_names_are_exactly_these() -> None:
    assert penstock.__all__ == EXPORTED
    assert set(dir(penstock)) == {*EXPORTED, "__version__"}


@pytest.mark.parametrize("name", EXPORTED)
def test_every_name_resolves(name: str) -> None:
    assert getattr(penstock, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Pipelin'"):
        _ = penstock.Pipelin


def test_importing_costs_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, penstock\n"
        "dir(penstock), penstock.__version__\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'apsw', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Plan reading on every minor version of Spark that pyproject.toml allows, besides the locked one.

What Spark says about its plans is not public API, so what was read with one version shows nothing about
another. The locked version is the newest that is allowed: `make lock` takes later ones.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uv

from penstock.config import cache_directory
from tests.test_install import UNREACHABLE

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/spark/test_session.py::test_spark_has_the_version_of_its_package",
    "tests/spark/test_plans.py",
    "tests/batch/runner/test_exchange_runs.py::test_verify_finds_a_plan_and_counts_that_do_not_fit",
)
ROWS = "gives_the_rows_of_everything"
"""Tests of what Spark computes, which take most of the time and read no plan in another way."""


def others() -> list[str]:
    """The first release of each allowed minor version before the locked one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [allowed] = [d for d in project["dependencies"] if d.startswith("pyspark")]
    least = re.fullmatch(r"pyspark>=(\d+)\.(\d+),<(\d+)", allowed)
    assert least, f"{allowed}: say here which versions that allows"
    major, minor, end = map(int, least.groups())
    locked = [int(part) for part in version("pyspark").split(".")[:2]]
    assert locked[0] == major == end - 1, f"{allowed}: say here which versions are between {major} and {end}"
    return [f"{major}.{each}.0" for each in range(minor, locked[1])]


def installed(pyspark: str) -> Path:
    """A folder with that PySpark and nothing else. It stays: Spark's class archive goes by its path."""
    folder = cache_directory() / "pyspark" / pyspark
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        words = ["pip", "install", "--python", sys.executable, "--no-deps", "--quiet", "--target"]
        command = [uv.find_uv_bin(), *words, unfinished, f"pyspark=={pyspark}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        if done.returncode and UNREACHABLE.search(done.stderr):
            pytest.skip(f"the package index cannot be reached: {' '.join(done.stderr.split())}")
        assert done.returncode == 0, done.stderr
        Path(unfinished, "whole").mkdir()
        for each in [*Path(unfinished).iterdir()]:
            if each.name != "whole":
                each.rename(Path(unfinished, "whole", each.name))
        Path(unfinished, "whole").rename(folder)
    return folder


@pytest.mark.parametrize("pyspark", others())
def test_plans_are_read_and_rows_exchanged(pyspark: str) -> None:
    """All other packages are those of this environment."""
    own = ("SPARK_", "PYSPARK_", "PYTEST_", "PENSTOCK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    path = [str(installed(pyspark)), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**kept, "PYTHONPATH": os.pathsep.join(path), "PENSTOCK_CACHE": str(cache_directory())}
    environ["PENSTOCK_TEST_PYSPARK"] = pyspark
    words = ["-m", "pytest", "-n", "0", "-q", "-k", f"not {ROWS}", *TESTS]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, f"PySpark {pyspark}:\n{done.stdout[-6000:]}{done.stderr[-2000:]}"

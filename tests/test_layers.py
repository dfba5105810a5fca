"""The architecture: which part of the package may import which."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.errors

# From the bottom to the top. A module imports only from lines below its own, or from its own part.
LAYERS: list[set[str]] = [
    {"durable", "errors", "names", "ranges", "stamps"},
    {"failpoints", "settings", "tls"},
    {"certs", "config", "dialect", "tables"},
    {"storage", "store"},
    {"spark"},
    {"catalog", "claims", "cluster"},
    {"inputs", "pipeline"},
    {"journals"},
    {"sources"},
    {"shuffle"},
    {"runner", "streams"},
    {"project"},
    {"children", "job"},
    {"instances", "stream_job"},
    {"stream_instances"},
    {"gateway"},
    {"cli"},
]
# What people import or run gathers names from everywhere.
FRONT = {"__init__", "__main__"}

ROOT = Path(penstock.errors.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported_parts(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "penstock":
            names |= {f"penstock.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            names.add(node.module or "")
    parts = {name.split(".")[1] for name in names if name.startswith("penstock.")}
    return {part for part in parts if not part.startswith("__")}


def height(part: str) -> int:
    found = [i for i, layer in enumerate(LAYERS) if part in layer]
    assert found, f"penstock.{part} has no layer yet: add it to LAYERS and to ARCHITECTURE.md"
    return found[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_from_below(path: Path) -> None:
    part = part_of(path)
    if part in FRONT:
        return
    others = imported_parts(ast.parse(path.read_text(encoding="utf-8"))) - {part}
    wrong = sorted(other for other in others if height(other) >= height(part))
    assert not wrong, f"penstock.{part} must not import {', '.join(wrong)}"


def test_help_needs_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, penstock.cli\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'py4j'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""The architecture: which part of the package may import which."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.errors

# From the bottom to the top. A module imports only from lines below its own, or from its own part. A part is
# a folder or a module; the longest path that fits is the one that counts.
LAYERS: list[set[str]] = [
    {"errors"},
    {"core"},
    {"config"},
    {"types"},
    {"certs", "sql"},
    {"storage", "store"},
    {"spark"},
    {"control.catalog", "control.claims", "control.cluster"},
    {"batch.exchange", "batch.inputs", "batch.pipeline"},
    {"journals.format"},
    {"journals.reader"},
    {"journals.writer"},
    {"journals"},
    {"sources"},
    {"journals.shuffle"},
    {"streams.layout", "streams.model"},
    {"sinks"},
    {"batch.runs", "streams"},
    {"batch.runner"},
    {"project"},
    {"workers"},
    {"server"},
    {"testing"},
    {"cli"},
]
HEIGHTS = {part: height for height, layer in enumerate(LAYERS) for part in layer}
# What people import or run gathers names from everywhere.
FRONT = {"__init__", "__main__", "batch", "control"}

ROOT = Path(penstock.errors.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
MOST = 20
"""Modules that a folder may show before it has to be cut into rooms."""


def part_of(module: str) -> str:
    """The longest part that a module, dotted below `penstock`, belongs to."""
    pieces = module.split(".")
    for end in range(len(pieces), 0, -1):
        if (part := ".".join(pieces[:end])) in HEIGHTS:
            return part
    return pieces[0]


def name_of(path: Path) -> str:
    pieces = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(pieces[:-1] if pieces[-1] == "__init__" and len(pieces) > 1 else pieces)


def imported(tree: ast.Module) -> set[str]:
    """Everything of ours that a module imports, dotted below `penstock`; a name may stand for a module."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("penstock.") for name in names if name.startswith("penstock.")}


def height(part: str) -> int:
    assert part in HEIGHTS, f"penstock.{part} has no layer yet: add it to LAYERS and to ARCHITECTURE.md"
    return HEIGHTS[part]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_from_below(path: Path) -> None:
    part = part_of(name_of(path))
    if part in FRONT:
        return
    found = {part_of(name) for name in imported(ast.parse(path.read_text(encoding="utf-8")))}
    others = {other for other in found if not other.startswith("__")} - {part}
    wrong = sorted(other for other in others if height(other) >= height(part))
    assert not wrong, f"penstock.{part} must not import {', '.join(wrong)}"


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    folders = {path.parent for path in MODULES}
    crowded = {str(f.relative_to(ROOT)): n for f in folders if (n := len(list(f.glob("*.py")))) > MOST}
    assert not crowded


def test_help_needs_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, penstock.cli\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'py4j'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Documents and examples use nothing but the public surface."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.support import GENERATED, PAGES, ROOT, code, named

PUBLIC = (
    "penstock",
    "penstock.errors",
    "penstock.journals",
    "penstock.sinks",
    "penstock.sources",
    "penstock.testing",
)
_INSIDE = {ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *GENERATED.values()}
"""Pages about the inside, and pages that are made of code."""
_PAGES = [page for page in PAGES if page not in _INSIDE]
_OF_THE_PAGE = {"CountSource", "SqliteSink"}
"""What the package brings that docs/howto/extend.md builds."""
_PROGRAM = re.compile(r"^\s*(?:from penstock\S* import|import penstock)", re.MULTILINE)


def problems(program: str) -> Iterator[str]:
    """What a program takes from places that are not public, or that have no such name."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if not _allowed(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and not _allowed(node.module):
            yield node.module
        elif isinstance(node, ast.ImportFrom) and node.module in PUBLIC:
            names = {alias.name for alias in node.names} - _exported(node.module) - _OF_THE_PAGE
            yield from (f"{node.module}.{name}" for name in names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _PROGRAM.match(node.value):
            yield from problems(textwrap.dedent(node.value))


def _allowed(module: str) -> bool:
    return module in PUBLIC or module.partition(".")[0] != "penstock"


def _exported(module: str) -> set[str]:
    found = importlib.import_module(module)
    return set(getattr(found, "__all__", None) or vars(found))


@pytest.mark.parametrize("page", _PAGES, ids=named)
def test_a_page_imports_only_what_is_public(page: Path) -> None:
    for block in code(page.read_text(encoding="utf-8"), "python"):
        assert not list(problems(block))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=named)
def test_an_example_imports_only_what_is_public(path: Path) -> None:
    assert not list(problems(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import penstock as ps\nfrom penstock.sinks import Sink\nimport pyspark", []),
        ("from penstock.store import Store", ["penstock.store"]),
        ("import penstock.store", ["penstock.store"]),
        ("from penstock import Nothing", ["penstock.Nothing"]),
        ("x = 'from penstock.core.failpoints import reach; reach()'", ["penstock.core.failpoints"]),
    ],
)
def test_what_is_private_is_found(program: str, expected: list[str]) -> None:
    assert list(problems(program)) == expected

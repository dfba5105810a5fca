"""Every code that an error can carry is explained."""

from __future__ import annotations

import ast

import pytest

from tests.docs.support import ROOT

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")


def codes() -> set[str]:
    """What classes of the package set as their ``code``: words with hyphens, unlike SQLSTATEs."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found |= {code for each in node.body if (code := _code(each))}
    return found


def _code(node: ast.stmt) -> str | None:
    target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    named = isinstance(target, ast.Name) and target.id == "code"
    value = node.value if named and isinstance(node, ast.Assign | ast.AnnAssign) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


@pytest.mark.parametrize("code", sorted(codes()))
def test_a_code_is_on_the_page(code: str) -> None:
    assert f"`{code}`" in PAGE

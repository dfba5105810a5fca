"""The reference of the Python API is made of docstrings, and up to date."""

from __future__ import annotations

import importlib

import pytest

from tests.docs import api_page
from tests.docs.support import GENERATED, STALE


def test_the_page_is_what_the_generator_makes() -> None:
    assert GENERATED["api"].read_text(encoding="utf-8") == api_page.page(), STALE


@pytest.mark.parametrize("module", api_page.MODULES)
def test_every_public_name_has_its_heading(module: str) -> None:
    text = GENERATED["api"].read_text(encoding="utf-8")
    section = text.split(f"\n## {module}\n", 1)[1].split("\n## ", 1)[0]
    for each in api_page.public(importlib.import_module(module)):
        assert f"\n### {each.name}\n" in section

"""Modules of Penstock can be moved, and what is kept of code stays what it was."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

import penstock.errors
import penstock.sinks
from penstock.core import moved
from tests.golden import definitions
from tests.golden.kit import Golden

KEPT = {golden.path: golden for golden in definitions.GOLDEN if not golden.path.startswith("sources/")}


def public() -> list[Any]:
    """Classes and functions that users can refer to."""
    found = []
    for module in (penstock, penstock.errors, penstock.sources, penstock.sinks):
        names = getattr(module, "__all__", None) or [name for name in vars(module) if name[0].isupper()]
        found += [getattr(module, name) for name in names]
    found += [
        penstock.journals.Journals,
        type(penstock.types.tables.Precision(1, 1)),
        penstock.types.tables.Field,
    ]
    named = (each for each in found if hasattr(each, "__qualname__"))
    return [each for each in named if getattr(each, "__module__", "").startswith("penstock.")]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Everything public is in another module, as after a move."""
    module = types.ModuleType("penstock.elsewhere.entirely")
    monkeypatch.setitem(sys.modules, "penstock.elsewhere", types.ModuleType("penstock.elsewhere"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    table = {}
    for each in dict.fromkeys(public()):
        home = moved.first_home(each.__module__, each.__qualname__)
        table[f"{module.__name__}:{each.__qualname__}"] = home
        monkeypatch.setattr(each, "__module__", module.__name__)
        setattr(module, each.__qualname__, each)
    monkeypatch.setattr(moved, "MOVED", {**moved.MOVED, **table})
    return module


@pytest.mark.parametrize("golden", KEPT.values(), ids=lambda golden: golden.path)
def test_what_is_kept_of_code_stays(elsewhere: types.ModuleType, golden: Golden) -> None:
    assert golden.write() == golden.data


@pytest.mark.parametrize("path", KEPT)
def test_it_would_change_if_nobody_wrote_the_move_down(
    elsewhere: types.ModuleType, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moved, "MOVED", {})
    assert KEPT[path].write() != KEPT[path].data


def test_homes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        moved, "MOVED", {"penstock.new": "penstock.old", "penstock.new:One": "penstock.one", "other": "x"}
    )
    assert moved.first_home("penstock.new", "Two") == "penstock.old"
    assert moved.first_home("penstock.new", "One") == "penstock.one"
    assert moved.first_home("penstock.kept", "One") == "penstock.kept"
    assert moved.first_home("other") == "other"

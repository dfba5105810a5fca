from __future__ import annotations

import sys
import types
import warnings

import pytest

from penstock.core.deprecation import moved, warn_moved
from penstock.core.ranges import Range


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("old_place")
    module.__getattr__ = moved(  # type: ignore[method-assign]
        "old_place", {"Range": "penstock.core.ranges", "Rows": "penstock.core.ranges:Range"}, until="0.4"
    )
    monkeypatch.setitem(sys.modules, "old_place", module)
    return module


def test_an_old_name_works_and_names_the_new_one(old: types.ModuleType) -> None:
    text = r"^old_place\.Range is now penstock\.core\.ranges\.Range; the old name goes in Penstock 0\.4$"
    with pytest.warns(DeprecationWarning, match=text) as told:
        assert old.Range is Range
    assert told[0].filename == __file__


def test_a_name_may_change_too(old: types.ModuleType) -> None:
    with pytest.warns(DeprecationWarning, match=r"old_place\.Rows is now penstock\.core\.ranges\.Range"):
        assert old.Rows is Range


def test_importing_from_the_old_place_warns_where_it_is_written(old: types.ModuleType) -> None:
    with pytest.warns(DeprecationWarning, match="is now"):
        exec("from old_place import Range")


def test_other_names_are_not_there(old: types.ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not hasattr(old, "Other")


def test_a_call_warns_its_caller() -> None:
    def old_function() -> None:
        warn_moved("old_function", "new_function", until="0.4")

    with pytest.warns(DeprecationWarning, match="new_function") as told:
        old_function()
    assert told[0].filename == __file__

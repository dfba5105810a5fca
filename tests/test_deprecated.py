"""Public names that were elsewhere in an earlier release."""

from __future__ import annotations

import importlib

import pytest

from penstock import sinks


@pytest.mark.parametrize("name", sinks.__all__)
def test_sinks_are_found_at_their_former_place(name: str) -> None:
    former = importlib.import_module("penstock.streams.sinks")
    with pytest.warns(DeprecationWarning, match=f"is now penstock.sinks.{name}"):
        assert getattr(former, name) is getattr(sinks, name)

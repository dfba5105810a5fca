"""Which cases of a test run each time, and which in `make soak` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def soaked(values: Iterable[Any]) -> list[ParameterSet]:
    """Parameters whose cases take long, and show more of what others show already."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]

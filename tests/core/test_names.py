from __future__ import annotations

import pytest

from penstock.core.names import is_name


@pytest.mark.parametrize("name", ["a", "2026-01-05", "2026-01-05.trades", "A_b-c.d", "x" * 100])
def test_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".a", "_a", "-a", "a/b", "a b", "größe", "a\n", "٣", "x" * 101])
def test_no_names(name: str) -> None:
    assert not is_name(name)


def test_a_longer_name_for_what_is_named_after_two() -> None:
    assert is_name("x" * 201, longest=201)

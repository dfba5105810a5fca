"""Statements made from a grammar mean what PostgreSQL says, or are refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.sql.generated.both import Both, both
from tests.sql.generated.comparison import Counts

SEEDS = (2020, 2021, 2022, 2023, 2024)
COUNT = 200
"""Of each seed."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both(tmp_path_factory.mktemp("generated")) as made:
        yield made


def _told(seed: int, counts: Counts) -> None:
    sys.stdout.write(f"seed {seed}: {counts}\n")


def test_a_thousand_statements(servers: Both) -> None:
    whole = sum(servers.all(SEEDS, COUNT, _told), Counts())
    assert not whole.wrong, "\n".join(whole.wrong)
    # Most must be answered, or the test says nothing.
    assert whole.equal > 0.7 * COUNT * len(SEEDS)


@pytest.mark.soak
def test_twenty_thousand_statements(servers: Both) -> None:
    whole = sum(servers.all(range(100, 120), 1_000, _told), Counts())
    assert not whole.wrong, "\n".join(whole.wrong)

"""A simulation that finds nothing is worth something only if it finds what was broken on purpose."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tests.simulation import fine_mutants, mutants
from tests.simulation.probes import Probes
from tests.simulation.run import simulate

_AT_MOST = 300


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_storms_notice(name: str) -> None:
    """Without probes, which would notice many of them sooner: what happens must show that it is wrong."""
    with mutants.MUTANTS[name](), patch.object(Probes, "ask", lambda probes, control: None):
        assert any(simulate(seed).violation for seed in range(_AT_MOST)), f"{name} was not noticed"


@pytest.mark.parametrize("name", fine_mutants.MUTANTS)
def test_the_simulation_notices(name: str) -> None:
    with fine_mutants.MUTANTS[name]():
        assert any(simulate(seed).violation for seed in range(_AT_MOST)), f"{name} was not noticed"

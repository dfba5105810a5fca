"""The real object store in simulated storms: late writers, slow readers, lost answers, clocks that are set.

``python -m tests.simulation --objects --seed N`` prints what happened in one of them.
"""

from __future__ import annotations

import pytest

from tests.marks import soaked
from tests.simulation.objects.mutants import MUTANTS
from tests.simulation.objects.run import simulate

_BLOCK = 30
_AT_MOST = 150


@pytest.mark.parametrize("block", [*range(2), *soaked(range(2, 4))])
def test_documents_and_sessions_are_exact_in_every_storm(block: int) -> None:
    runs = [simulate(seed) for seed in range(block * _BLOCK, (block + 1) * _BLOCK)]
    assert [str(run.violation) for run in runs if run.violation] == []
    # A storm in which nothing is written, refused, lost or ended would show nothing.
    assert sum(run.written for run in runs) > 10 * _BLOCK
    assert sum(run.refused for run in runs) > 5 * _BLOCK
    assert sum(run.unknown for run in runs) > _BLOCK
    assert sum(run.ended for run in runs) > 2 * _BLOCK


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = ([simulate(seed, record=True).digest for seed in range(4)] for _ in range(2))
    assert first == second
    assert len(set(first)) == 4


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_notices(name: str) -> None:
    with MUTANTS[name]():
        assert any(simulate(seed).violation for seed in range(_AT_MOST)), f"{name} was not noticed"


@pytest.mark.soak
def test_documents_and_sessions_are_exact_in_many_more_storms() -> None:
    found = [str(run.violation) for run in map(simulate, range(1_000, 6_000)) if run.violation]
    assert found == []

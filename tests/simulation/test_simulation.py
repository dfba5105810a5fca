"""The real control plane in thousands of simulated storms, each from a seed that can be run again.

``python -m tests.simulation --seed N`` prints what happened in one of them.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.marks import soaked
from tests.simulation.run import simulate

_BLOCK = 100


@pytest.mark.parametrize("block", [*range(4), *soaked(range(4, 10))])
def test_invariants_hold_in_every_storm(block: int) -> None:
    runs = [simulate(seed) for seed in range(block * _BLOCK, (block + 1) * _BLOCK)]
    assert [str(run.violation) for run in runs if run.violation] == []
    # A storm in which nothing is decided would show nothing.
    assert sum(run.epochs for run in runs) > 5 * _BLOCK
    assert sum(run.terms for run in runs) > 1.5 * _BLOCK
    assert sum(run.versions for run in runs) > 1.5 * _BLOCK


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = ([simulate(seed, record=True).digest for seed in range(10)] for _ in range(2))
    assert first == second
    assert len(set(first)) == 10


def test_a_seed_gives_the_same_run_in_another_process() -> None:
    here = simulate(7, record=True)
    command = [sys.executable, "-m", "tests.simulation", "--seed", "7"]
    output = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "1"}, capture_output=True, text=True, check=True
    )
    assert output.stdout.splitlines()[:-1] == here.trace


@pytest.mark.soak
def test_invariants_hold_in_many_more_storms() -> None:
    found = [str(run.violation) for run in map(simulate, range(1_000, 22_000)) if run.violation]
    assert found == []

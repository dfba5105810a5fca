"""Real stream workers in hundreds of simulated storms: every row once and in order, then the end.

``python -m tests.simulation --streams --seed N`` prints what happened in one of them.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.marks import soaked
from tests.simulation.run import simulate
from tests.simulation.stream_mutants import MUTANTS
from tests.simulation.streaming import Stream

_BLOCK = 50
_AT_MOST = 200


@pytest.mark.parametrize("block", [*range(2), *soaked(range(2, 6))])
def test_rows_are_read_exactly_once_in_every_storm(block: int) -> None:
    runs = [simulate(seed, kind=Stream) for seed in range(block * _BLOCK, (block + 1) * _BLOCK)]
    assert [str(run.violation) for run in runs if run.violation] == []
    # A storm in which nothing is read, moved or ended would show nothing.
    assert sum(run.rows for run in runs) > 10 * _BLOCK
    assert sum(run.versions for run in runs) > 1.5 * _BLOCK
    assert sum(run.ended for run in runs) > 0.6 * _BLOCK


def test_a_seed_gives_the_same_run_in_another_process() -> None:
    here = simulate(7, record=True, kind=Stream)
    command = [sys.executable, "-m", "tests.simulation", "--streams", "--seed", "7"]
    output = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "1"}, capture_output=True, text=True, check=True
    )
    assert output.stdout.splitlines()[:-1] == here.trace


@pytest.mark.parametrize("name", MUTANTS)
def test_the_oracle_notices(name: str) -> None:
    with MUTANTS[name]():
        assert any(simulate(seed, kind=Stream).violation for seed in range(_AT_MOST)), (
            f"{name} was not noticed"
        )


@pytest.mark.soak
def test_rows_are_read_exactly_once_in_many_more_storms() -> None:
    runs = (simulate(seed, kind=Stream) for seed in range(300, 10_000))
    assert [str(run.violation) for run in runs if run.violation] == []

"""(e) How long a command takes before it does anything."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence

from bench.lab import Lab
from bench.measuring import compare, timed
from bench.results import Result

LIMIT = 0.3
TIMES = 4

HELP = [sys.executable, "-m", "penstock", "--help"]
IMPORT = [sys.executable, "-c", "import penstock"]
NOTHING = [sys.executable, "-c", "pass"]


def run(lab: Lab) -> Iterator[Result]:
    repeat = lab.repeat * TIMES
    yield compare(
        f"(e) penstock --help ÷ the limit of {LIMIT} s (s)",
        lambda: _seconds(HELP),
        lambda: LIMIT,
        repeat=repeat,
        goal=1.0,
    )
    for name, command in (("penstock --help", HELP), ("import penstock", IMPORT)):
        yield compare(
            f"(e) {name} ÷ python -c pass (s)",
            lambda command=command: _seconds(command),  # type: ignore[misc]
            lambda: _seconds(NOTHING),
            repeat=repeat,
        )


def _seconds(command: Sequence[str]) -> float:
    return timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))

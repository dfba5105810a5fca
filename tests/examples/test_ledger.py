"""Orders and payments in transactions over two journals, run from the command line as the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.support import EXAMPLES
from tests.examples.test_words import until

LEDGER = EXAMPLES / "ledger"
PRODUCERS, ORDERS = 4, 40


@pytest.mark.soak
def test_the_books_balance_at_every_epoch(tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "LEDGER_JOURNALS": str(tmp_path / "journals"),
        "PENSTOCK_SPARK_MASTER": "local[2]",
        "PENSTOCK_SPARK_FAST_START": "true",
        "PENSTOCK_STREAM_LIST_EVERY": "1s",
        # Many epochs, each with a few transactions.
        "PENSTOCK_STREAM_MAX_BYTES": "4KB",
    }
    given = ["--orders", str(ORDERS), "--producers", str(PRODUCERS), "--kills", "8", "--pace", "0.05"]
    write = [sys.executable, str(LEDGER / "write.py"), str(tmp_path / "journals"), *given]
    penstock = [sys.executable, "-m", "penstock"]
    writing = subprocess.Popen(write, cwd=tmp_path, text=True, stdout=subprocess.PIPE)
    start = [*penstock, "stream", "start", str(LEDGER / "stream.py")]
    started = subprocess.Popen(start, cwd=tmp_path, env=environ, text=True, stdout=subprocess.DEVNULL)
    try:
        told, _ = writing.communicate(timeout=120)
        assert "producers were killed 8 times" in told
        wanted = PRODUCERS * ORDERS
        until(lambda: orders(penstock, tmp_path) == wanted, "all orders")
        frontier = [*penstock, "journal", "frontier", "ledger"]
        shown = subprocess.run(frontier, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "0 B in 2 journals" in shown.stdout
        check = [sys.executable, str(LEDGER / "check.py")]
        checked = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        found = re.findall(r"epoch \d+: (\d+) orders, 0 out of balance", checked.stdout)
        assert int(found[-1]) == wanted
        assert len(found) > 3
    finally:
        writing.kill()
        started.terminate()
        started.wait(60)


def orders(penstock: list[str], folder: Path) -> int:
    """How many orders the stream shows by now."""
    shown = subprocess.run(
        [*penstock, "stream", "show", "ledger", "orders", "--limit", "10000", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return shown.stdout.count('"order"')

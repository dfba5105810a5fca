"""The demo: one instance is killed, the other takes over, and the output is exact."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_demo_ends_well(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    ended = subprocess.run(
        [sys.executable, "-m", "demo", "--rows", "40000", "--partitions", "8", "--folder", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = ended.stdout
    assert ended.returncode == 0, said + ended.stderr
    assert re.search(r"kill -9 \d+: (north|south) dies while it works on", said)
    assert re.search(r"(north|south) takes over \S+ and goes on with stage [12]", said)
    assert re.search(
        r"(north 💀 → south|south 💀 → north) +1 → 2 +stage [12] \(.+\), from its checkpoint", said
    )
    assert re.search(r"✓ computed again: [\d,]+ rows, for the one stage that each of \d claims was at", said)
    assert re.search(r"✓ taken from checkpoints: [1-9][\d,]+ rows", said)
    assert "✓ verify: 40,000 of 40,000 input rows processed once" in said
    assert len(re.findall(r"✓ \w+: [\d,]+ rows, equal to plain Spark's, value by value", said)) == 2
    assert "✗" not in said
    assert "runs show positions" in said
    assert (folder / "penstock.toml").exists() and not (folder / "plain").exists()

"""Write log files that grow: ``python generate.py logs [--files 3] [--lines 5000] [--pace 200]``."""

from __future__ import annotations

import argparse
import json
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORDS = ["the", "gated", "pipe", "carries", "water", "under", "pressure", "to", "the", "turbine"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=3)
    parser.add_argument("--lines", type=int, default=5000, help="lines in all")
    parser.add_argument("--pace", type=float, default=200, help="lines a second; 0 for all at once")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    dice = random.Random(given.seed)
    given.folder.mkdir(parents=True, exist_ok=True)
    files = [(given.folder / f"app-{n}.jsonl").open("a") for n in range(given.files)]
    for number in range(given.lines):
        # A twentieth of a second apart, and up to five seconds out of order.
        at = BEGIN + timedelta(seconds=number / 20 - dice.random() * 5)
        text = " ".join(dice.choices(WORDS, k=dice.randint(3, 9)))
        file = dice.choice(files)
        file.write(json.dumps({"at": at.isoformat(), "text": text}) + "\n")
        file.flush()
        if given.pace:
            time.sleep(1 / given.pace)
    for file in files:
        file.close()


if __name__ == "__main__":
    main()

"""Run statements of some seeds, and show those that are wrong: `python -m tests.sql.generated --help`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.sql.generated.both import both
from tests.sql.generated.comparison import Counts


def _told(seed: int, counts: Counts) -> None:
    lines = [f"seed {seed}: {counts}", *counts.wrong]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sql.generated", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--count", type=int, default=1000, help="statements of each seed")
    parser.add_argument("--refused", action="store_true", help="say why statements were refused")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-generated-") as folder, both(Path(folder)) as servers:
        start = time.monotonic()
        seeds = range(options.seed, options.seed + options.seeds)
        found = servers.all(seeds, options.count, _told)
        took = time.monotonic() - start
    whole = sum(found, Counts())
    sys.stdout.write(f"{options.count * len(seeds)} statements in {took:.0f} s: {whole}\n")
    for why, times in whole.known.most_common():
        sys.stdout.write(f"  known {times}: {why}\n")
    if options.refused:
        for why, times in whole.reasons.most_common():
            sys.stdout.write(f"  refused {times}: {why}\n    {whole.examples[why]}\n")
    return 1 if whole.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

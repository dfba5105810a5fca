"""``python -m bench NAME``: measure, and print what was measured."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import report
from bench.lab import Lab
from bench.measuring import say, say_if_busy
from bench.results import Result
from bench.scenarios import Scenario

WORK = Path(".bench")
Benches = Mapping[str, Sequence[Scenario]]


def main(arguments: Sequence[str] | None = None, benches: Benches | None = None) -> int:
    """The exit code: 0 when everything could be measured, whether or not the goals hold; 1 if not."""
    benches = known() if benches is None else benches
    given = parser(sorted(benches)).parse_args(arguments)
    scenarios = chosen(benches[given.name], given.only)
    lab = Lab(WORK.resolve(), rows=given.rows, repeat=given.repeat, keep=given.keep)
    results: list[Result] = []
    failed = False
    try:
        for scenario in scenarios:
            began = time.monotonic()
            say(f"({scenario.key}) {scenario.title}")
            say_if_busy()
            try:
                results.extend(scenario.run(lab))
            except Exception:
                # What the others measure is worth having; the exit code tells that this one is missing.
                failed = True
                traceback.print_exc()
            say(f"({scenario.key}) took {time.monotonic() - began:.0f} s")
    finally:
        lab.close()
    if given.json:
        print(report.as_json(given.name, results))
    else:
        print(report.as_markdown(results) if given.markdown else report.as_text(results))
    return int(failed)


def known() -> Benches:
    from bench import batch, cluster, exchange, gateway, shuffle, streams

    return {
        "batch": batch.SCENARIOS,
        "cluster": cluster.SCENARIOS,
        "exchange": exchange.SCENARIOS,
        "gateway": gateway.SCENARIOS,
        "shuffle": shuffle.SCENARIOS,
        "streams": streams.SCENARIOS,
    }


def parser(names: Sequence[str]) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench", description="Measure Penstock against its peers.")
    made.add_argument("name", choices=names, help="what to measure")
    made.add_argument("--rows", type=positive, default=10_000_000, help="rows of the input (default 10 M)")
    made.add_argument("--repeat", type=positive, default=5, help="measurements of each side (default 5)")
    made.add_argument("--only", default="", metavar="a,b,…", help="only these scenarios")
    made.add_argument("--keep", action="store_true", help=f"keep what the runs wrote below {WORK}")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    return made


def positive(text: str) -> int:
    value = int(text.replace("_", ""))
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def chosen(scenarios: Sequence[Scenario], only: str) -> list[Scenario]:
    wanted = [key.strip() for key in only.split(",") if key.strip()]
    if unknown := sorted(set(wanted) - {s.key for s in scenarios}):
        keys = ", ".join(f"{s.key} ({s.title})" for s in scenarios)
        raise SystemExit(f"no scenario {', '.join(unknown)}; there are {keys}")
    return [s for s in scenarios if not wanted or s.key in wanted]


if __name__ == "__main__":
    sys.exit(main())

"""Results as JSON for programs, and as a table for a terminal or a document."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from bench.results import Result

HEADER = ("measurement", "ours", "peer", "ours ÷ peer", "spread", "goal", "holds")


def as_json(scenario: str, results: Sequence[Result]) -> str:
    return json.dumps({"scenario": scenario, "results": [r.to_json() for r in results]}, ensure_ascii=False)


def as_text(results: Sequence[Result]) -> str:
    rows = [HEADER, *(cells(r) for r in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    rows.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    )


def as_markdown(results: Sequence[Result]) -> str:
    rows = [HEADER, ("---", *["---:"] * (len(HEADER) - 2), "---"), *(cells(r) for r in results)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cells(result: Result) -> tuple[str, ...]:
    low, high = result.spread
    return (
        result.name,
        number(result.ours),
        number(result.peer),
        f"{result.ratio:.2f}",
        f"{low:.2f} to {high:.2f}",
        "" if result.goal is None else f"≤ {result.goal:.2f}",
        {True: "yes", False: "NO", None: ""}[result.holds],
    )


def number(value: float) -> str:
    """Three digits are what a measurement can promise; counts are given whole."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

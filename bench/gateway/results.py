"""(a) Rows that are ready as Arrow through libpq, beside PostgreSQL, which has them in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from bench.gateway import trades
from bench.gateway.clients import Libpq, drained
from bench.gateway.processes import stored
from bench.lab import Lab
from bench.measuring import compare, timed
from bench.results import Result
from servers.postgres import Postgres

GOALS = {False: 1.0, True: 0.5}
SETTINGS = ("shared_buffers=1GB",)


def run(lab: Lab) -> Iterator[Result]:
    rows = trades.count(lab)
    with (
        lab.place("results") as place,
        stored(lab, place) as ours,
        Postgres(SETTINGS) as postgres,
    ):
        trades.load(postgres.url, trades.files(lab))
        with Libpq(ours.url) as one, Libpq(postgres.url) as other:
            for name, ways in {
                "in chunks": (one.stream, other.stream),
                "whole": (one.ask, other.ask),
            }.items():
                for binary, goal in GOALS.items():
                    yield compare(
                        f"(a) {rows:,} rows through libpq, {name}, {_form(binary)} ÷ PostgreSQL (s)",
                        partial(_asked, ways[0], rows, binary),
                        partial(_asked, ways[1], rows, binary),
                        repeat=lab.repeat,
                        goal=goal,
                    )
        for binary in GOALS:
            yield compare(
                f"(a) {rows:,} rows, bytes thrown away, {_form(binary)} ÷ PostgreSQL (s)",
                partial(_drained, ours.url, binary),
                partial(_drained, postgres.url, binary),
                repeat=lab.repeat,
            )


def _form(binary: bool) -> str:
    return "binary" if binary else "text"


def _asked(way: Callable[..., int], rows: int, binary: bool) -> float:
    def ask() -> None:
        if (found := way(trades.QUERY, binary=binary)) != rows:
            raise RuntimeError(f"{found:,} of {rows:,} rows came")

    return timed(ask)


def _drained(url: str, binary: bool) -> float:
    return timed(lambda: drained(url, trades.QUERY, binary=binary))

"""(b) Rows from Parquet files to the client: the whole gateway beside Spark's own Connect server."""

from __future__ import annotations

from collections.abc import Iterator

from bench.gateway import trades
from bench.gateway.clients import Libpq
from bench.gateway.flights import fetched
from bench.gateway.processes import Child, child, served
from bench.lab import Lab
from bench.measuring import Measure, compare, timed
from bench.results import Result
from servers.sparks import spark_connect

GOAL = 1.0


def run(lab: Lab) -> Iterator[Result]:
    from pyarrow import flight

    rows = trades.count(lab)
    with (
        lab.place("connect") as place,
        served(lab, place) as ours,
        spark_connect(place.path) as remote,
        child("-m", "bench.gateway.remote", remote, str(trades.files(lab))) as peer,
        Libpq(ours.url) as client,
        flight.connect(ours.rpc) as flights,
    ):
        ways: dict[str, Measure] = {
            "text": lambda: timed(lambda: _all(client.stream(trades.QUERY), rows)),
            "binary": lambda: timed(lambda: _all(client.stream(trades.QUERY, binary=True), rows)),
            "Flight SQL": lambda: timed(lambda: _all(fetched(flights), rows)),
        }
        for name, measure in ways.items():
            yield compare(
                f"(b) {rows:,} rows from Parquet, {name} ÷ Spark Connect (s)",
                measure,
                lambda: timed(lambda: _asked(peer, rows)),
                repeat=lab.repeat,
                goal=GOAL,
            )


def _asked(peer: Child, rows: int) -> None:
    peer.say("go")
    _all(peer.hear()["rows"], rows)


def _all(found: int, rows: int) -> None:
    if found != rows:
        raise RuntimeError(f"{found:,} of {rows:,} rows came")

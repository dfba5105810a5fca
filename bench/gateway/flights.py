"""(c) Rows that are ready as Arrow through Flight SQL, beside bare Flight with the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyarrow import flight

from bench.gateway import trades
from bench.gateway.processes import stored
from bench.lab import Lab
from bench.measuring import compare, timed
from bench.results import Result

GOAL = 1 / 0.9
TIMES = 5


def run(lab: Lab) -> Iterator[Result]:
    rows = trades.count(lab)
    with (
        lab.place("flight") as place,
        stored(lab, place) as ours,
        stored(lab, place, "bare") as bare,
        flight.connect(ours.rpc) as one,
        flight.connect(bare.rpc) as other,
    ):
        yield compare(
            f"(c) {rows:,} rows through Flight SQL ÷ bare pyarrow.flight (ms)",
            lambda: cost(one, rows),
            lambda: cost(other, rows),
            repeat=lab.repeat,
            goal=GOAL,
        )


def cost(client: Any, rows: int) -> float:
    """Milliseconds for one result; a few are fetched, since one takes no longer than a wink."""

    def fetch() -> None:
        for _ in range(TIMES):
            if (found := fetched(client)) != rows:
                raise RuntimeError(f"{found:,} of {rows:,} rows came")

    return timed(fetch) / TIMES * 1e3


def fetched(client: Any) -> int:
    """Ask for the trades and let the batches fall: how many rows came."""
    from penstock.server.flight import flightsql_pb2 as sql
    from penstock.server.flight.messages import sealed

    command = sealed(sql.CommandStatementQuery(query=trades.QUERY))
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
    rows = 0
    for end in info.endpoints:
        for chunk in client.do_get(end.ticket):
            rows += chunk.data.num_rows
    return rows

"""(b) Rows from Parquet files to the client: the whole gateway beside Spark's own servers.

Rows go to clients of rows, libpq and JDBC, beside Spark's Thrift server, which is for those; it is asked for
a tenth of the rows. Arrow goes to Arrow's clients, beside Spark Connect. Libpq beside Connect has no goal:
there Connect's client takes Arrow, which nobody has to turn into rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from bench.gateway import trades
from bench.gateway.clients import Libpq
from bench.gateway.flights import fetched
from bench.gateway.processes import Child, Served, child, served
from bench.lab import Lab, Place
from bench.measuring import compare, say, timed
from bench.results import Result
from servers.packages import need
from servers.sparks import SPARK_HOME, spark_connect, spark_thrift

GOAL = 1.0
WARM_UP = 8
"""Measurements of ours that do not count: a JVM goes on compiling for long."""
DRIVER = Path("/usr/share/java/postgresql.jar")
FETCHED = "10000"


def run(lab: Lab) -> Iterator[Result]:
    with lab.place("connect") as place, served(lab, place) as ours, Libpq(ours.url) as client:
        warm = [timed(lambda: client.stream(trades.QUERY)) for _ in range(WARM_UP)]
        say(f"(b) warm-up: {' '.join(f'{seconds:.3g}' for seconds in warm)}")
        yield from _beside_thrift(lab, place, ours, client)
        yield from _beside_connect(lab, place, ours, client)


def _beside_thrift(lab: Lab, place: Place, ours: Served, client: Libpq) -> Iterator[Result]:
    rows = max(trades.count(lab) // 10, 1)
    sql = f"{trades.QUERY} WHERE id < {rows}"
    table = f"CREATE TEMPORARY VIEW {trades.TABLE} USING parquet OPTIONS (path '{trades.files(lab)}')"
    url = f"jdbc:{ours.url.replace('penstock@', '')}"
    with (
        spark_thrift(place.path) as thrift,
        _jdbc(thrift, sql, table) as peer,
        _jdbc(url, sql) as jdbc,
    ):
        ways: dict[str, Callable[[], int]] = {
            "libpq, text": lambda: client.stream(sql),
            "libpq, binary": lambda: client.stream(sql, binary=True),
            "JDBC": lambda: _asked(jdbc),
        }
        for name, way in ways.items():
            yield _compared(lab, rows, f"{name} ÷ Spark's Thrift server, JDBC", way, peer, GOAL)


def _beside_connect(lab: Lab, place: Place, ours: Served, client: Libpq) -> Iterator[Result]:
    from pyarrow import flight

    rows, files = trades.count(lab), str(trades.files(lab))
    with (
        flight.connect(ours.rpc) as flights,
        spark_connect(place.path) as remote,
        child("-m", "bench.gateway.remote", remote, files) as peer,
    ):
        warm = [timed(lambda: _asked(peer)) for _ in range(WARM_UP)]
        say(f"(b) warm-up, Spark Connect: {' '.join(f'{seconds:.3g}' for seconds in warm)}")
        ways: dict[str, Callable[[], int]] = {
            "Flight SQL": lambda: fetched(flights),
            "libpq, text": lambda: client.stream(trades.QUERY),
            "libpq, binary": lambda: client.stream(trades.QUERY, binary=True),
        }
        for name, way in ways.items():
            goal = GOAL if name == "Flight SQL" else None
            yield _compared(lab, rows, f"{name} ÷ Spark Connect", way, peer, goal)


def _compared(
    lab: Lab, rows: int, name: str, way: Callable[[], int], peer: Child, goal: float | None
) -> Result:
    return compare(
        f"(b) {rows:,} rows from Parquet, {name} (s)",
        lambda: timed(lambda: _all(way(), rows)),
        lambda: timed(lambda: _all(_asked(peer), rows)),
        repeat=lab.repeat,
        goal=goal,
    )


def _jdbc(url: str, sql: str, first: str = "") -> AbstractContextManager[Child]:
    if not DRIVER.exists():
        # It brings no program: ask for one that is never there.
        need("postgresql.jar", "libpostgresql-jdbc-java", lambda: DRIVER.parent)
    # A source is run as it is, but only where there is a compiler.
    need("javac", "default-jdk-headless")
    java = need("java", "default-jdk-headless")
    source = str(Path(__file__).with_name("Rows.java"))
    path = f"{DRIVER}:{SPARK_HOME / 'jars'}/*"
    return child("-cp", path, source, url, "penstock", first, sql, FETCHED, program=java)


def _asked(peer: Child) -> int:
    peer.say("go")
    return int(peer.hear()["rows"])


def _all(found: int, rows: int) -> None:
    if found != rows:
        raise RuntimeError(f"{found:,} of {rows:,} rows came")

"""(e) What the gateway adds to Spark: each statement through it, and by hand on the same Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.gateway import trades
from bench.gateway.clients import Libpq
from bench.lab import MASTER, Lab
from bench.measuring import say, timed
from bench.results import Result
from penstock.config import ClusterConfig, Config, ServeConfig, SparkConfig, TableConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL = 1.03
ADDED = 20.0
POINTS = 20
WARM_UP = 5
"""Rounds that do not count: the JVM goes on compiling for long."""
SWEEPS = 1
"""The same for TPC-H, of which a round takes minutes."""
QUERIES = Path(__file__).parents[2] / "tests" / "sql" / "tpch"
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")


@dataclass(frozen=True, slots=True)
class Sides:
    """Two ways to ask the same Spark: over a socket, and by hand."""

    client: Libpq
    spark: SparkSession

    def pair(self, sql: str, text: str, ours_first: bool) -> tuple[float, float]:
        """Milliseconds of both; who comes first may find it warmer, and so they take turns."""
        found: dict[str, int] = {}

        def ours() -> None:
            found["ours"] = self.client.ask(sql)

        def plain() -> None:
            found["plain"] = self.spark.sql(text).toArrow().num_rows

        first = timed(ours) if ours_first else 0.0
        other = timed(plain)
        one = first if ours_first else timed(ours)
        if found["ours"] != found["plain"]:
            raise RuntimeError(f"{found['ours']:,} and {found['plain']:,} rows came of {sql}")
        return one * 1e3, other * 1e3


def run(lab: Lab) -> Iterator[Result]:
    folder = tpch(lab)
    paths = {trades.TABLE: trades.files(lab)} | {name: folder / f"{name}.parquet" for name in TABLES}
    with asking(lab, paths) as sides:
        yield from points(lab, sides)
        yield from queries(lab, sides, folder.name)


def points(lab: Lab, sides: Sides) -> Iterator[Result]:
    """Each asks for another row, so that nothing can be remembered from before."""
    rows = trades.count(lab)
    taken: list[tuple[float, float]] = []
    for number in range(lab.repeat + WARM_UP):
        pairs = []
        for point in range(POINTS):
            sql = f"{trades.QUERY} WHERE id = {(number * POINTS + point) * 7919 % rows}"
            pairs.append(sides.pair(sql, sql, point % 2 == 0))
        taken.append((median(one for one, _ in pairs), median(other for _, other in pairs)))
        say(f"(e) point query: {taken[-1][0]:.1f} and {taken[-1][1]:.1f} ms")
    taken = taken[WARM_UP:]
    ours, plain = [one for one, _ in taken], [other for _, other in taken]
    yield Result.of(f"(e) a point query of {rows:,} rows ÷ plain PySpark (ms)", ours, plain)
    added = [one - other for one, other in taken]
    yield Result.of("(e) a point query, added ÷ what may be (ms)", added, [ADDED] * len(added), 1.0)


def queries(lab: Lab, sides: Sides, name: str) -> Iterator[Result]:
    asked = {path.stem: path.read_text(encoding="utf-8") for path in sorted(QUERIES.glob("q*.sql"))}
    texts = {stem: in_spark(sides.spark, sql) for stem, sql in asked.items()}
    taken: list[dict[str, tuple[float, float]]] = []
    for number in range(lab.repeat + SWEEPS):
        sweep = {
            stem: sides.pair(sql, texts[stem], (number + place) % 2 == 0)
            for place, (stem, sql) in enumerate(asked.items())
        }
        ours, plain = (sum(pair[side] for pair in sweep.values()) / 1e3 for side in (0, 1))
        say(f"(e) {name}: {ours:.2f} and {plain:.2f} s")
        taken.append(sweep)
    taken = taken[SWEEPS:]
    totals = [[sum(pair[side] for pair in sweep.values()) / 1e3 for sweep in taken] for side in (0, 1)]
    yield Result.of(f"(e) all of {name} ÷ plain PySpark (s)", totals[0], totals[1], GOAL)
    mean = [(one - other) * 1e3 / len(asked) for one, other in zip(*totals, strict=True)]
    yield Result.of(
        f"(e) {name}, added to a query in the mean ÷ what may be (ms)", mean, [ADDED] * len(mean), 1.0
    )
    each = {stem: [sweep[stem][0] - sweep[stem][1] for sweep in taken] for stem in asked}
    for stem, added in each.items():
        say(f"(e) {stem}: {median(sweep[stem][1] for sweep in taken):.0f} ms, added {median(added):.1f}")
    usual = [median(each[stem][number] for stem in asked) for number in range(len(taken))]
    yield Result.of(
        f"(e) {name}, added to a query in the median ÷ what may be (ms)", usual, [ADDED] * len(usual), 1.0
    )


def in_spark(spark: SparkSession, sql: str) -> str:
    """The query as the gateway says it in Spark SQL, over tables of the same names."""
    from penstock.sql.parse.postgres import parse_one
    from penstock.sql.translate import SparkRelation, translate

    def target(path: tuple[str, ...]) -> SparkRelation | None:
        if path[-1] not in TABLES:
            return None
        fields = spark.table(path[-1]).schema.fields
        return SparkRelation(path[-1], {field.name: field.dataType.simpleString() for field in fields})

    return translate(parse_one(sql), target=target)


@contextmanager
def asking(lab: Lab, paths: Mapping[str, Path]) -> Iterator[Sides]:
    """The whole gateway in this process, and a session with the very settings of its own."""
    from pyspark.sql import SparkSession

    from penstock.server.access import Access, Users
    from penstock.server.engine.running.sessions import SparkSessions
    from penstock.server.http.sources import StoreSources
    from penstock.server.process.listeners import ProtocolServers
    from penstock.server.process.service import Service
    from penstock.server.process.switch import EngineSwitch
    from penstock.storage import Storage
    from penstock.store import open_store

    with lab.place("overhead") as place, ExitStack() as running:
        config = Config(
            place.store,
            str(place.storage),
            spark=SparkConfig(master=MASTER, memory="4g"),
            cluster=ClusterConfig(rpc_port=0),
            serve=ServeConfig(port=0, web_port=0),
            tables=tuple(TableConfig(name, str(path)) for name, path in paths.items()),
        )
        store, storage = open_store(config.store), Storage(config.storage)
        service = Service(config, store, storage, tuple, place.path / "cache")
        say("starting the gateway")
        engine = service.start()
        running.callback(service.stop)
        if service.problems:
            raise RuntimeError("; ".join(service.problems))
        switch = EngineSwitch("")
        switch.open(engine)
        servers = ProtocolServers(config, switch, Access(Users(store)), StoreSources(store, storage, config))
        servers.start()
        running.callback(servers.stop)
        session = SparkSession.getActiveSession()
        assert session is not None
        plain = SparkSessions(session).of("UTC")
        for name, path in paths.items():
            plain.read.parquet(str(path)).createOrReplaceTempView(name)
        url = f"postgresql://penstock@127.0.0.1:{servers.ports['sql']}/penstock"
        client = running.enter_context(Libpq(url))
        yield Sides(client, plain)


def tpch(lab: Lab) -> Path:
    """The tables, made when they are not there yet: scale factor 1 with the default of ten million rows."""
    scale = lab.rows / 10_000_000
    made = lab.folder / "data" / f"TPC-H SF {scale:g}"
    if not made.exists():
        unfinished = made.with_suffix(".tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        program = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(program), "parquet", "-s", str(scale), "--output-dir", str(unfinished)]
        subprocess.run(command, check=True, capture_output=True)
        unfinished.rename(made)
    return made

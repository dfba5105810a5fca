"""(d) ``SELECT 1`` by pgbench, with one connection and with many, beside PostgreSQL."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from bench.gateway.processes import served
from bench.lab import Lab
from bench.measuring import say
from bench.results import Result
from servers.packages import need
from servers.postgres import Postgres

CONNECTIONS = (1, 32)
MODES = ("simple", "extended", "prepared")
SECONDS = 3
_NUMBERS = count(1)
Times = tuple[float, float, float]


def run(lab: Lab) -> Iterator[Result]:
    with lab.place("answers") as place, served(lab, place) as ours, Postgres() as postgres:
        for mode in MODES:
            for connections in CONNECTIONS:
                taken: list[tuple[Times, Times]] = []
                # The first ones warm up.
                for number in range(lab.repeat + 1):
                    one = asked(place.path, ours.url, mode, connections)
                    other = asked(place.path, postgres.url, mode, connections)
                    say(f"(d) {mode}, {connections}: {number}/{lab.repeat}: {one} and {other} ms")
                    taken.append((one, other))
                noun = "connection" if connections == 1 else "connections"
                for which, name in enumerate(("median", "99th percentile", "mean")):
                    yield Result.of(
                        f"(d) SELECT 1, {mode}, {connections} {noun}, {name} ÷ PostgreSQL (ms)",
                        [one[which] for one, _ in taken[1:]],
                        [other[which] for _, other in taken[1:]],
                    )


def asked(folder: Path, url: str, mode: str, connections: int) -> Times:
    """The median, the 99th percentile and the mean of what a statement took, in milliseconds."""
    place = urlsplit(url)
    script = folder / "one.sql"
    script.write_text("SELECT 1;\n", encoding="ascii")
    prefix = folder / f"pgbench-{next(_NUMBERS)}"
    command = [need("pgbench", "postgresql"), "--no-vacuum", "--file", str(script), "--protocol", mode]
    command += ["--client", str(connections), "--time", str(SECONDS), "--log", "--log-prefix", str(prefix)]
    # With fewer threads than clients, pgbench takes the time of the one for that of the other.
    command += ["--jobs", str(connections)]
    command += ["--host", str(place.hostname), "--port", str(place.port), "--username", str(place.username)]
    done = subprocess.run([*command, place.path[1:]], check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pgbench ended with {done.returncode}: {done.stderr[-2000:]}")
    times = sorted(_times(prefix))
    # By their number: pgbench tells zero for an answer that is there before it has looked at the clock.
    mean = connections * SECONDS * 1e3 / len(times)
    return times[len(times) // 2], times[len(times) * 99 // 100], mean


def _times(prefix: Path) -> Iterator[float]:
    for log in prefix.parent.glob(f"{prefix.name}.*"):
        for line in log.read_text(encoding="ascii").splitlines():
            yield int(line.split()[2]) / 1e3
        log.unlink()

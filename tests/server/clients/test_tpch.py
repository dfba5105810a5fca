"""TPC-H through one psql: the answers are DuckDB's on the same files."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.server.clients.data import TPCH

if TYPE_CHECKING:
    from tests.server.clients.conftest import Gateway

QUERIES = sorted((Path(__file__).parents[2] / "sql" / "tpch").glob("q*.sql"))


def _same(one: str, other: object) -> bool:
    if isinstance(other, int) or other is None:
        return one == ("" if other is None else str(other))
    if isinstance(other, str):
        return one == other
    try:
        number = float(str(other))
    except ValueError:
        return one == str(other)
    # DuckDB divides decimals as doubles.
    return math.isclose(float(one), number, rel_tol=1e-12)


@pytest.fixture(scope="module")
def answers(gateway: Gateway) -> dict[str, list[list[str]]]:
    script = "".join(f"\\echo ==={path.stem}\n{path.read_text().rstrip().rstrip(';')};\n" for path in QUERIES)
    done = gateway.psql("--csv", "-t", "-v", "ON_ERROR_STOP=1", script=script)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("===")[1:]
    named = dict(part.split("\n", 1) for part in parts)
    return {name: list(csv.reader(io.StringIO(rows))) for name, rows in named.items()}


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_an_answer(gateway: Gateway, answers: dict[str, list[list[str]]], path: Path) -> None:
    with duckdb.connect() as duck:
        for name in TPCH:
            duck.execute(f"CREATE VIEW {name} AS SELECT * FROM '{gateway.folder}/data/{name}.parquet'")
        theirs = duck.execute(path.read_text()).fetchall()
    ours = answers[path.stem]
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert len(one) == len(other)
        assert all(_same(a, b) for a, b in zip(one, other, strict=True)), (one, other)


def test_all_queries_were_asked(answers: dict[str, list[list[str]]]) -> None:
    assert len(answers) == 22

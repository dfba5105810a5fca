"""A statement is classified once on its way from a client to a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from penstock.server.base import Client
from penstock.server.engine.planning.planner import Planner
from penstock.server.http import queries
from penstock.server.pgwire.session.statements import pieces, understand
from penstock.server.session_settings import Settings
from penstock.sql.parse.token_reader import TokenReader
from penstock.sql.statements import classify
from tests.server.engine.standins import ANN, Description, FileTables, FixedShadow, text
from tests.server.stand_in import StandIn, StandInConnection

LONG = f"SELECT '{'x' * 5000}' AS a"
"""Too long for anything to be remembered of it."""
ONE = Description((), (text("a"),))


class Planning(StandInConnection):
    """Plans as the engine does, and runs nothing."""

    def prepare(self, sql: str, parameters: Any = (), *, exact: bool = False, command: Any = None) -> Any:
        shadow = FixedShadow(known=dict.fromkeys((LONG, f"EXPLAIN {LONG}"), ONE))
        tables = FileTables(cast("Any", None), Path())
        planner = Planner(cast("Any", tables), cast("Any", shadow), cast("Any", None))
        return planner.prepare(sql, parameters, ANN, self.settings, exact=exact, command=command)

    def execute(self, prepared: Any, parameters: Any = ()) -> Any:
        return prepared


class PlanningEngine(StandIn):
    def connect(self, client: Client, settings: Settings) -> Planning:
        return Planning(self, client, settings)


@pytest.fixture
def classified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were classified."""
    found: list[str] = []

    def count(sql: str, dialect: str = "auto") -> Any:
        found.append(sql)
        return TokenReader(sql, dialect)

    monkeypatch.setattr(classify, "TokenReader", count)
    return found


@pytest.mark.parametrize("lead", ["", "  ", "EXPLAIN ", "CREATE VIEW v AS "])
def test_over_postgresqls_protocol(classified: list[str], lead: str) -> None:
    connection = PlanningEngine().connect(Client(ANN, "pgwire"), Settings())
    understand(*pieces(lead + LONG)[0], connection)
    assert classified == [lead + LONG]


@pytest.mark.parametrize("dialect", ["auto", "postgres"])
def test_over_http(classified: list[str], dialect: str) -> None:
    settings = Settings({"penstock.sql": dialect})
    queries._start(PlanningEngine(), Client(ANN, "http"), settings, LONG, [])
    assert classified == [LONG]


def test_a_statement_within_another_is_classified_by_itself(classified: list[str]) -> None:
    connection = PlanningEngine().connect(Client(ANN, "pgwire"), Settings())
    declare = f"DECLARE c CURSOR FOR {LONG}"
    understand(*pieces(declare)[0], connection)
    assert classified == [declare, LONG]

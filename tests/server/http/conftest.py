from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.errors import UsageError
from penstock.server.access import Access, Users
from penstock.server.base import TableInfo
from penstock.server.http import Sources, WebServer
from penstock.server.http.metrics import Metric, labelled
from penstock.server.http.results import ResultLimits
from penstock.store.memory import MemoryStore
from tests.server.http.browser import Browser
from tests.server.stand_in import StandIn, constant

NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("name", pa.string())])


class Shown(Sources):
    def workers(self) -> list[dict[str, object]]:
        return [{"id": "w1", "cores": 4}]

    def runs(self) -> list[dict[str, object]]:
        return [{"run": "r1"}]

    def run(self, name: str) -> dict[str, object]:
        if name != "r1":
            raise UsageError(f"there is no run {name!r}", hint="known runs: r1")
        return {"run": "r1"}

    def streams(self) -> list[dict[str, object]]:
        return [{"name": "s1"}]

    def stream(self, name: str) -> dict[str, object]:
        return {"name": name}

    def metrics(self) -> list[Metric]:
        return [labelled("penstock_connections", "gauge", "Clients.", "protocol", {"pgwire": 2.0})]


@pytest.fixture
def engine() -> StandIn:
    tables = [
        TableInfo("public", "numbers", "table", NUMBERS),
        TableInfo("sys", "queries", "system", NUMBERS),
    ]
    rows = pa.table({"n": [1, 2, 3], "name": ["a", None, "c"]}, schema=NUMBERS)
    return StandIn(constant(rows), listed=tables)


@pytest.fixture
def users() -> Users:
    return Users(MemoryStore())


@pytest.fixture
def server(engine: StandIn, users: Users) -> Iterator[WebServer]:
    limits = ResultLimits(results=6, ahead=1 << 20)
    server = WebServer(engine, Access(users), sources=Shown(), limits=limits)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def browser(server: WebServer) -> Browser:
    """Trusted: no user exists."""
    return Browser(server.port)

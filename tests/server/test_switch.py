from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.server.base import Client, User
from penstock.server.process.switch import EngineSwitch
from penstock.server.session_settings import Settings
from tests.server.stand_in import StandIn

ANN = Client(User("ann", admin=True), "pgwire")


def test_a_shut_door_tells_why_so_that_clients_try_the_next_host() -> None:
    switch = EngineSwitch("the server is starting up")
    assert switch.ready() == "the server is starting up"
    for ask in (
        lambda: switch.connect(ANN, Settings()),
        lambda: switch.tables(ANN.user),
        lambda: switch.queries(ANN.user),
        lambda: switch.cancel("q", ANN.user),
    ):
        with pytest.raises(SqlError, match="starting up") as caught:
            ask()
        assert caught.value.sqlstate == "57P03"


def test_an_open_door_hands_on() -> None:
    switch = EngineSwitch("starting")
    switch.open(StandIn())
    assert switch.ready() is None
    assert [table.name for table in switch.tables(ANN.user)] == ["people"]
    assert switch.connect(ANN, Settings()).prepare("SELECT * FROM people").tag == "SELECT"


def test_when_it_shuts_clients_are_sent_away_once() -> None:
    switch = EngineSwitch("starting")
    sent: list[str] = []
    switch.dismiss = sent.append
    switch.shut("still starting")
    switch.open(StandIn())
    switch.shut("another one leads")
    switch.shut("another one leads")
    assert sent == ["another one leads"]

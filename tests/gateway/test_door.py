from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.gateway.base import Client, User
from penstock.gateway.door import Door
from penstock.gateway.settings import Settings
from tests.gateway.stand_in import StandIn

ANN = Client(User("ann", admin=True), "pgwire")


def test_a_shut_door_tells_why_so_that_clients_try_the_next_host() -> None:
    door = Door("the server is starting up")
    assert door.ready() == "the server is starting up"
    for ask in (
        lambda: door.connect(ANN, Settings()),
        lambda: door.tables(ANN.user),
        lambda: door.queries(ANN.user),
        lambda: door.cancel("q", ANN.user),
    ):
        with pytest.raises(SqlError, match="starting up") as caught:
            ask()
        assert caught.value.sqlstate == "57P03"


def test_an_open_door_hands_on() -> None:
    door = Door("starting")
    door.open(StandIn())
    assert door.ready() is None
    assert [table.name for table in door.tables(ANN.user)] == ["people"]
    assert door.connect(ANN, Settings()).prepare("SELECT * FROM people").tag == "SELECT"


def test_when_it_shuts_clients_are_sent_away_once() -> None:
    door = Door("starting")
    sent: list[str] = []
    door.dismiss = sent.append
    door.shut("still starting")
    door.open(StandIn())
    door.shut("another one leads")
    door.shut("another one leads")
    assert sent == ["another one leads"]

"""What clients have the server keep is bounded in bytes: of each connection, and of all together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.errors import SqlError
from penstock.server.network.budgets import Budget, Purse
from penstock.server.pgwire.server import ClientLimits
from tests.server.pgwire.raw import FLUSH, SYNC, Raw, bind, error, kinds, message, parse
from tests.server.pgwire.serving import Serving, serving
from tests.server.waiting import wait_until

MB = 1 << 20
LIMITS = ClientLimits(connection_memory=16 * MB, client_memory=24 * MB)


@pytest.fixture(scope="module")
def narrow() -> Iterator[Serving]:
    with serving(limits=LIMITS) as running:
        yield running


def entered(server: Serving) -> Raw:
    client = Raw(server.port)
    client.enter()
    return client


def held(portal: str, megabytes: float) -> bytes:
    return bind([b"x" * int(megabytes * MB)], portal=portal, name="s")


def test_portals_of_one_connection_have_a_budget(narrow: Serving) -> None:
    with entered(narrow) as client:
        client.send(parse("SELECT $1::text", name="s"), held("a", 3), held("b", 3), FLUSH)
        assert [client.read()[0] for _ in range(3)] == ["1", "2", "2"]
        said = client.ask(held("c", 3), SYNC)
        assert error(said)["C"] == "53200" and "portals" in error(said)["H"]
        # The transaction has ended, and with it all portals: there is room again.
        assert kinds(client.ask(held("d", 3), SYNC)) == "2Z"
        client.send(held("e", 3), held("f", 3), message("C", b"Pe\0"), held("g", 3), FLUSH)
        assert [client.read()[0] for _ in range(4)] == ["2", "2", "3", "2"]
        assert kinds(client.ask(SYNC)) == "Z"


def test_all_connections_together_have_one_and_nobody_is_locked_out(narrow: Serving) -> None:
    with entered(narrow) as one, entered(narrow) as two, entered(narrow) as three:
        for client in (one, two):
            client.send(parse("SELECT $1::text", name="s"), held("a", 5.8), FLUSH)
            assert [client.read()[0] for _ in range(2)] == ["1", "2"]
        said = three.ask(parse("SELECT $1::text", name="s"), held("a", 0.9), held("b", 0.9), SYNC)
        assert kinds(said) == "1EZ" and error(said)["C"] == "53200"
        # Little is always granted.
        assert kinds(three.ask(bind([b"7"], name="s"), SYNC)) == "2Z"
    wait_until(lambda: narrow.server.connections == 0)
    with entered(narrow) as client:
        assert kinds(client.ask(parse("SELECT $1::text", name="s"), held("a", 5), SYNC)) == "12Z"


def test_a_message_for_which_there_is_no_room_is_refused_before_it_is_here(narrow: Serving) -> None:
    with entered(narrow) as client:
        client.send(b"B" + (20 * MB).to_bytes(4, "big"))
        kind, body = client.read()
        assert kind == "E" and b"53200" in body
    wait_until(lambda: narrow.server.connections == 0)


def test_a_budget_counts_what_was_given_back() -> None:
    budget = Budget(total=30 * MB, each=20 * MB)
    one, two = Purse(budget), Purse(budget)
    one.take(20 * MB, "a", "b")
    with pytest.raises(SqlError):
        one.take(1, "a", "b")
    with pytest.raises(SqlError):
        two.take(11 * MB, "a", "b")
    two.take(MB, "a", "b")
    one.give(5 * MB)
    two.take(11 * MB, "a", "b")
    one.close()
    two.close()
    assert budget.taken == 0

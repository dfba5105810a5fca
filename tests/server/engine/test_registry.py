"""The list of queries: states, who sees what, and how many are kept."""

from __future__ import annotations

import time

from penstock.errors import SqlError
from penstock.server.base import Client, QueryState, User
from penstock.server.engine.registry import Registry, made_at, new_id

ANN, BOB, ADMIN = User("ann"), User("bob"), User("root", admin=True)


def test_a_query_goes_through_its_states_and_a_final_one_stays() -> None:
    registry = Registry()
    query = registry.open(Client(ANN, "http"), "SELECT 1", lambda: None)
    assert query.info.state is QueryState.QUEUED and query.info.started is None
    query.move(QueryState.PLANNING)
    query.move(QueryState.RUNNING)
    query.sent(3, 30)
    query.sent(2, 20)
    query.move(QueryState.FAILED, SqlError("too bad", sqlstate="22012"))
    query.move(QueryState.FINISHED)
    info = query.info
    assert (info.state, info.error, info.sqlstate) == (QueryState.FAILED, "too bad", "22012")
    assert (info.rows, info.bytes) == (5, 50)
    assert info.started is not None and info.ended is not None


def test_users_see_their_own_and_admins_all_newest_first() -> None:
    registry = Registry()
    first = registry.open(Client(ANN, "http"), "one", lambda: None)
    registry.open(Client(BOB, "http"), "two", lambda: None)
    first.move(QueryState.FINISHED)
    assert [info.sql for info in registry.infos(ANN)] == ["one"]
    assert [info.sql for info in registry.infos(ADMIN)] == ["two", "one"]


def test_only_the_last_that_ended_are_kept() -> None:
    registry = Registry(kept=2)
    for n in range(4):
        registry.open(Client(ANN, "http"), str(n), lambda: None).move(QueryState.FINISHED)
    assert [info.sql for info in registry.infos(ANN)] == ["3", "2"]


def test_one_cancels_ones_own_and_an_admin_any() -> None:
    registry = Registry()
    stopped: list[str] = []
    query = registry.open(Client(ANN, "http"), "x", lambda: stopped.append("x"))
    assert not registry.cancel(query.id, BOB)
    assert registry.cancel(query.id, ANN)
    assert registry.cancel(query.id, ADMIN)
    assert stopped == ["x", "x"]
    query.move(QueryState.CANCELED)
    assert not registry.cancel(query.id, ANN)
    assert not registry.cancel("unknown", ADMIN)


def test_names_are_short_and_differ() -> None:
    names = {new_id() for _ in range(1_000)}
    assert len(names) == 1_000
    assert max(map(len, names)) <= 20
    assert abs((made_at(names.pop()) or 0) - time.time()) < 60
    assert made_at("something else") is None


def test_a_long_statement_is_told_by_its_beginning() -> None:
    query = Registry().open(Client(ANN, "http"), "x" * 1_000_000, lambda: None)
    assert len(query.info.sql) < 20_000

"""Replicas: replayed as a whole, or brought up to date by differences, they end up the same."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.catalog import (
    Catalog,
    Create,
    Drop,
    Follower,
    Handler,
    Statement,
    StatementKind,
    replay,
)
from penstock.control.catalog.manifest import HEAD
from penstock.control.catalog.rules import CatalogChange
from penstock.errors import CatalogError, PenstockError, StoreUnavailable
from penstock.store.base import Changes, Store
from penstock.store.memory import MemoryStore
from tests.control.catalog.support import create, statement

Stores = tuple[Store, Store]


class Replica(Handler):
    """Each thing holds on to what it was built on, as a compiled view does.

    When it is told to fail, it leaves something behind that is neither old nor new.
    """

    def __init__(self) -> None:
        self.things: dict[str, tuple[object, ...]] = {}
        self.needs: dict[str, tuple[str, ...]] = {}
        self.dropped: set[str] = set()
        self.log: list[str] = []
        self.fail_after = -1
        self.error: Exception = ValueError("no such column")

    def build(self, statement: Statement) -> None:
        parts = [self.things[name] for name in statement.needs]
        old = self.things.get(statement.name)
        assert old is None or old[0] == statement.kind, "another kind of thing is there"
        self.things[statement.name] = (statement.kind, "half-way")
        self.needs.setdefault(statement.name, statement.needs)
        self._stumble()
        self.things[statement.name] = (statement.kind, statement.sql, *parts)
        self.needs[statement.name] = statement.needs
        self.dropped.clear()
        self.log.append(f"build {statement.name}")

    def drop(self, statement: Statement) -> None:
        self._stumble()
        assert self.things.pop(statement.name)[0] == statement.kind
        assert not self.dropped & self.all_needs_of(statement.name), "something was dropped before its user"
        del self.needs[statement.name]
        self.dropped.add(statement.name)
        self.log.append(f"drop {statement.name}")

    def _stumble(self) -> None:
        self.fail_after -= 1
        if self.fail_after == -1:
            raise self.error

    def all_needs_of(self, name: str) -> set[str]:
        """All that ``name`` was built on, directly or not."""
        needs = set(self.needs.get(name, ()))
        return needs.union(*(self.all_needs_of(each) for each in needs))

    def take_log(self) -> list[str]:
        log, self.log = self.log, []
        return log


def replayed(store: Store) -> dict[str, tuple[object, ...]]:
    replica = Replica()
    replay(Catalog(store).read(), replica.build)
    return replica.things


def test_replay_is_in_order(stores: Stores) -> None:
    catalog = Catalog(stores[0])
    catalog.change(create("b"))
    catalog.change(create("a", "b"))
    catalog.change(create("z"))
    catalog.change(create("b", "z", replace=True))
    built: list[str] = []
    replay(catalog.read(), lambda s: built.append(s.name))
    assert built == ["z", "b", "a"]


def test_an_error_of_a_replay_names_the_statement() -> None:
    catalog = Catalog(MemoryStore())
    for name in ("a", "b", "c"):
        catalog.change(create(name))
    replica = Replica()
    replica.fail_after = 1
    with pytest.raises(
        CatalogError, match="view b of the catalog cannot be rebuilt: ValueError: no such"
    ) as e:
        replay(catalog.read(), replica.build)
    assert "penstock catalog show b" in (e.value.hint or "")
    assert list(replica.things) == ["a", "b"]


def test_an_error_of_a_replay_keeps_its_type() -> None:
    catalog = Catalog(MemoryStore())
    catalog.change(create("a"))
    replica = Replica()
    replica.fail_after, replica.error = 0, StoreUnavailable("asleep", hint="wake it")
    with pytest.raises(StoreUnavailable, match=r"view a .* asleep") as raised:
        replay(catalog.read(), replica.build)
    assert raised.value.hint == "wake it"


def test_a_follower_starts_with_everything_and_goes_on_with_differences(stores: Stores) -> None:
    catalog, replica = Catalog(stores[0]), Replica()
    for change in (create("a", kind=StatementKind.TABLE), create("b", "a"), create("c", "b"), create("z")):
        catalog.change(change)
    follower = Follower(stores[1], replica)
    assert follower.poll(5)
    assert (replica.take_log(), follower.version) == (["build a", "build b", "build c", "build z"], 4)
    assert not follower.poll(0.01)
    catalog.change(create("n", "z"))
    assert follower.poll(5)
    assert (replica.take_log(), follower.version) == (["build n"], 5)
    catalog.change(Drop("a", cascade=True))
    assert follower.poll(5)
    assert replica.take_log() == ["drop c", "drop b", "drop a"]
    assert replica.things == replayed(stores[0])


def follow(*changes: CatalogChange) -> list[str]:
    """What a follower does about changes that were made since it had a, b on a, c on b, and z."""
    store, replica = MemoryStore(), Replica()
    for begin in (create("a"), create("b", "a"), create("c", "b"), create("z")):
        Catalog(store).change(begin)
    follower = Follower(store, replica)
    follower.catch_up()
    replica.log.clear()
    for change in changes:
        Catalog(store).change(change)
    follower.poll(0)
    assert replica.things == replayed(store)
    return replica.log


@pytest.mark.parametrize(
    ("changes", "done"),
    [
        ([create("z", sql="SELECT 2", replace=True)], ["build z"]),
        ([create("b", "a", sql="SELECT 2", replace=True)], ["build b", "build c"]),
        ([create("b", "z", replace=True)], ["build b", "build c"]),
        ([create("z", replace=True)], []),
        ([create("n"), Drop("n")], []),
        ([Drop("z"), create("z")], []),
        ([Drop("z"), create("z", kind=StatementKind.SINK)], ["drop z", "build z"]),
        (
            [Drop("b", cascade=True), create("b", kind=StatementKind.STREAM), create("c", "b")],
            ["drop b", "build b", "build c"],
        ),
        ([create("b", replace=True), Drop("a"), Drop("c")], ["drop c", "drop a", "build b"]),
        ([create("b", replace=True), create("a", "b", replace=True)], ["build b", "build a", "build c"]),
    ],
)
def test_differences(changes: list[CatalogChange], done: list[str]) -> None:
    assert follow(*changes) == done


def test_a_follower_wakes_up_for_a_change(stores: Stores) -> None:
    replica = Replica()
    follower = Follower(stores[1], replica)
    follower.catch_up()
    writer = threading.Timer(0.1, lambda: Catalog(stores[0]).change(create("a")))
    writer.start()
    began = time.monotonic()
    assert follower.poll(20)
    writer.join()
    assert time.monotonic() - began < 5
    assert list(replica.things) == ["a"]


def test_a_change_between_reading_and_watching_is_not_missed() -> None:
    class Late(Replica):
        def build(self, statement: Statement) -> None:
            super().build(statement)
            if statement.name == "a":
                catalog.change(create("b"))

    store = MemoryStore()
    catalog, replica = Catalog(store), Late()
    catalog.change(create("a"))
    follower = Follower(store, replica)
    follower.catch_up()
    assert follower.poll(5)
    assert list(replica.things) == ["a", "b"]


def test_a_follower_goes_on_where_it_failed() -> None:
    store, replica = MemoryStore(), Replica()
    catalog, follower = Catalog(store), Follower(store, replica)
    for name in ("a", "b", "c"):
        catalog.change(create(name))
    replica.fail_after = 1
    with pytest.raises(CatalogError, match="view b "):
        follower.poll(5)
    assert (replica.take_log(), follower.version) == (["build a"], 0)
    catalog.change(create("b", sql="SELECT 'mended'", replace=True))
    assert follower.poll(5)
    assert (replica.take_log(), follower.version) == (["build b", "build c"], 4)


def test_what_failed_half_way_is_mended_although_the_catalog_went_back() -> None:
    store, replica = MemoryStore(), Replica()
    catalog, follower = Catalog(store), Follower(store, replica)
    catalog.change(create("a", sql="SELECT 1"))
    catalog.change(create("b", "a"))
    follower.catch_up()
    catalog.change(create("a", sql="SELECT 2", replace=True))
    catalog.change(create("n"))
    replica.fail_after = 0
    with pytest.raises(CatalogError):
        follower.poll(5)
    catalog.change(create("a", sql="SELECT 1", replace=True))
    replica.take_log()
    follower.poll(5)
    assert replica.take_log() == ["build a", "build b", "build n"]
    assert replica.things == replayed(store)


def test_what_failed_half_way_is_dropped_when_it_is_no_longer_wanted() -> None:
    store, replica = MemoryStore(), Replica()
    catalog, follower = Catalog(store), Follower(store, replica)
    catalog.change(create("a"))
    replica.fail_after = 0
    with pytest.raises(CatalogError):
        follower.poll(5)
    catalog.change(Drop("a"))
    follower.poll(5)
    assert replica.things == {}


def test_a_follower_that_failed_tries_again_without_a_change_but_does_not_spin() -> None:
    store, replica = MemoryStore(), Replica()
    follower = Follower(store, replica)
    Catalog(store).change(create("a"))
    replica.fail_after = 0
    with pytest.raises(CatalogError):
        follower.poll(5)
    began = time.monotonic()
    assert follower.poll(0.2)
    assert time.monotonic() - began >= 0.15
    assert list(replica.things) == ["a"]


def test_a_store_that_fails_loses_no_change() -> None:
    class Flaky(MemoryStore):
        down = False

        def watch(self, prefix: str, since: int, timeout: float) -> Changes:
            if self.down:
                raise StoreUnavailable
            return super().watch(prefix, since, timeout)

    store, replica = Flaky(), Replica()
    follower = Follower(store, replica)
    follower.catch_up()
    Catalog(store).change(create("a"))
    store.down = True
    with pytest.raises(StoreUnavailable):
        follower.poll(1)
    store.down = False
    assert follower.poll(1)
    assert list(replica.things) == ["a"]


def test_a_catalog_that_was_removed_leaves_an_empty_replica() -> None:
    store, replica = MemoryStore(), Replica()
    follower = Follower(store, replica)
    Catalog(store).change(create("a"))
    Catalog(store).change(create("b", "a"))
    follower.catch_up()
    document = store.get(HEAD)
    assert document is not None
    store.cas(HEAD, document.version, None)
    assert follower.poll(5)
    assert (replica.things, follower.version) == ({}, 0)


NAMES = st.sampled_from([f"n{i}" for i in range(6)])
CREATES = st.builds(
    lambda name, needs, kind, text, replace: Create(
        statement(name, *needs, kind=kind, sql=f"SELECT {text}"), replace
    ),
    NAMES,
    st.lists(NAMES, max_size=3, unique=True),
    st.sampled_from([StatementKind.TABLE, StatementKind.VIEW]),
    st.integers(0, 2),
    st.booleans(),
)
DROPS = st.builds(Drop, NAMES, st.booleans())
POLLS = st.integers(0, 5)
"""A look at the catalog: 0 succeeds, a larger one fails after so many statements less one."""


def catches_up(follower: Follower, replica: Replica) -> bool:
    """Whether it does, or fails as it was told to."""
    try:
        follower.poll(0)
    except CatalogError as error:
        if error.__cause__ is not replica.error:
            raise
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(st.lists(CREATES | DROPS | POLLS, max_size=40))
def test_differences_give_the_same_as_a_replay(steps: list[CatalogChange | int]) -> None:
    store, replica = MemoryStore(), Replica()
    catalog, follower = Catalog(store), Follower(store, replica)
    for step in steps:
        if isinstance(step, int):
            replica.fail_after = step - 1
            if catches_up(follower, replica):
                assert replica.things == replayed(store)
        else:
            with suppress(PenstockError):
                catalog.change(step)
    replica.fail_after = -1
    follower.poll(0)
    assert replica.things == replayed(store)
    assert follower.version == catalog.head().version

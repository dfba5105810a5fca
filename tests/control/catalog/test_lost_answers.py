"""Changes whose answer was lost: each is made once, and none is taken for somebody else's."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock.control.catalog import Catalog, Drop
from penstock.control.catalog.codec import decode
from penstock.control.catalog.manifest import HEAD
from penstock.control.catalog.model import HISTORY
from penstock.errors import CatalogConflict, StoreUnavailable
from penstock.store.base import Document
from penstock.store.memory import MemoryStore
from tests.control.catalog.support import create, names

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.catalog.manifest.time.sleep", lambda seconds: None)


class Mute(MemoryStore):
    """Carries out the next ``mute`` writes of the head without an answer, and then does ``meanwhile``."""

    def __init__(self) -> None:
        super().__init__()
        self.mute = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        done = super().cas(key, expected, value)
        if key == HEAD and self.mute:
            self.mute -= 1
            self.meanwhile()
            raise StoreUnavailable
        return done


@pytest.mark.parametrize("expected", [None, 1])
def test_a_change_that_was_made_is_recognised(expected: int | None) -> None:
    store = Mute()
    catalog = Catalog(store)
    catalog.change(create("a"))
    store.mute = 1
    assert catalog.change(create("b"), expected=expected).version == 2
    store.mute = 1
    assert catalog.change(Drop("b")).version == 3
    assert names(catalog.head()) == ["a"]


@pytest.mark.parametrize("expected", [None, 1])
def test_it_is_recognised_although_others_went_on(expected: int | None) -> None:
    store = Mute()
    catalog, other = Catalog(store), Catalog(store)
    catalog.change(create("a"))

    def go_on() -> None:
        other.change(Drop("b"))
        for i in range(HISTORY - 2):
            other.change(create(f"n{i}"))

    store.mute, store.meanwhile = 1, go_on
    made = catalog.change(create("b"), expected=expected)
    assert (made.version, made.what) == (2, "create view b")
    assert "b" not in names(catalog.head())


def test_it_is_not_guessed_when_history_does_not_go_back_that_far() -> None:
    store = Mute()
    catalog, other = Catalog(store), Catalog(store)

    def go_on() -> None:
        other.change(Drop("b"))
        for i in range(HISTORY):
            other.change(create(f"n{i}"))

    store.mute, store.meanwhile = 1, go_on
    with pytest.raises(CatalogConflict, match="does not tell whether it was made"):
        catalog.change(create("b"))
    assert "b" not in names(catalog.head())


def test_a_request_that_is_asked_again_is_made_once() -> None:
    store = Mute()
    catalog = Catalog(store)
    store.meanwhile = lambda: setattr(store, "get", unavailable)
    store.mute = 1
    with pytest.raises(StoreUnavailable) as raised:
        catalog.change(create("a"), request="mine")
    assert raised.value.left == "it is not known whether the change was made"
    assert "catalog history" in (raised.value.hint or "")
    del store.get
    assert catalog.change(create("a"), expected=0, request="mine").version == 1
    assert catalog.change(create("b"), request="another").version == 2


def unavailable(key: str) -> Document | None:
    raise StoreUnavailable(hint="wake it up")


def test_a_store_that_is_gone_from_the_start_has_changed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(store, "get", unavailable)
    with pytest.raises(StoreUnavailable) as raised:
        Catalog(store).change(create("a"))
    assert (raised.value.left, raised.value.hint) == ("the catalog was not changed", "wake it up")


class Faulty(MemoryStore):
    """Anything may fail before it is done, after it is done, or be done later than it failed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dice = random.Random(seed)
        self.late: list[tuple[str, int, bytes | None]] = []
        self.made: list[str] = []

    def get(self, key: str) -> Document | None:
        self._stumble()
        return super().get(key)

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        self._stumble()
        fate = self.dice.random()
        if fate < 0.15:
            self.late.append((key, expected, value))
            raise StoreUnavailable
        done = self._write(key, expected, value)
        if fate < 0.4:
            raise StoreUnavailable
        return done

    def _stumble(self) -> None:
        while self.late and self.dice.random() < 0.5:
            self._write(*self.late.pop(self.dice.randrange(len(self.late))))
        if self.dice.random() < 0.1:
            raise StoreUnavailable

    def _write(self, key: str, expected: int, value: bytes | None) -> int | None:
        done = super().cas(key, expected, value)
        if done is not None and key == HEAD and value is not None:
            self.made.append(decode(value).history[-1].request)
        return done


def test_under_any_faults_a_change_is_made_at_most_once_and_surely_if_it_was_answered() -> None:
    for seed in range(300):
        store = Faulty(seed)
        catalog = Catalog(store)
        answered = []
        for n in range(12):
            with suppress(StoreUnavailable):
                answered.append(catalog.change(create(f"n{n}"), request=f"r{n}").request)
        assert len(set(store.made)) == len(store.made), seed
        assert set(answered) <= set(store.made), seed
        final = MemoryStore.get(store, HEAD)
        assert final is not None
        head = decode(final.value)
        assert [f"r{name[1:]}" for name in names(head)] == store.made, seed
        for entry in head.entries:
            assert MemoryStore.get(store, f"catalog/ddl/{entry.digest}"), seed

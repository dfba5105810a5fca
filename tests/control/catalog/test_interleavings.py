"""Changes and sweeps step by step in every order that chance finds: no head ever refers to a missing text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from greenlet import getcurrent, greenlet

from penstock.control.catalog import Catalog, Drop, texts
from penstock.control.catalog.codec import decode
from penstock.control.catalog.manifest import HEAD
from penstock.control.catalog.model import digest_of
from penstock.errors import CorruptFile, PenstockError
from penstock.store.base import Document, Store
from penstock.store.memory import MemoryStore
from tests.control.catalog.support import create

SEEDS = 400


class Stepping(MemoryStore):
    """Whoever asks it for something has to wait for its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.hub = getcurrent()

    def get(self, key: str) -> Document | None:
        self.hub.switch()
        return super().get(key)

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        self.hub.switch()
        return super().cas(key, expected, value)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        self.hub.switch()
        return super().list(prefix, after, limit)

    def is_whole(self) -> bool:
        """Whether the texts of the head are all there."""
        document = MemoryStore.get(self, HEAD)
        entries = decode(document.value).entries if document else ()
        return all(MemoryStore.get(self, f"catalog/ddl/{entry.digest}") for entry in entries)


def worker(store: Store, seed: int, name: str) -> Callable[[], None]:
    """Adds, replaces and drops one name; the texts are those of everybody else, too."""
    dice = random.Random(f"{seed} {name}")

    def work() -> None:
        catalog = Catalog(store)
        for _ in range(4):
            sql = f"SELECT {dice.randrange(2)}"
            try:
                change = Drop(name) if dice.random() < 0.5 else create(name, sql=sql, replace=True)
                catalog.change(change)
                catalog.read()
            except CorruptFile:
                raise
            except PenstockError:
                continue

    return work


def explore(seed: int) -> bool:
    """Let three workers take turns until all are done; whether the catalog was whole all the time."""
    dice = random.Random(seed)
    store = Stepping()
    workers = [greenlet(worker(store, seed, name)) for name in ("a", "b", "c")]
    while workers:
        chosen = dice.choice(workers)
        # A longer turn now and then, so that others find themselves overtaken.
        for _ in range(dice.choice([1, 1, 6])):
            chosen.switch()
            if chosen.dead:
                workers.remove(chosen)
                break
            if not store.is_whole():
                return False
    return store.is_whole()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.catalog.manifest.time.sleep", lambda seconds: None)


def test_no_head_refers_to_a_missing_text() -> None:
    assert [seed for seed in range(SEEDS) if not explore(seed)] == []


def put_once(store: Store, sql: str) -> None:
    store.cas(f"catalog/ddl/{digest_of(sql)}", 0, sql.encode())


def sweep_whatever_is_there(store: Store, seen: Sequence[Document], referred: set[str]) -> None:
    for document in seen:
        newest = store.get(document.key)
        if newest and document.key.removeprefix(texts.PREFIX) not in referred:
            store.cas(newest.key, newest.version, None)


@pytest.mark.parametrize(("name", "mutant"), [("put", put_once), ("sweep", sweep_whatever_is_there)])
def test_mutants_are_caught(name: str, mutant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, name, mutant)

    def survives(seed: int) -> bool:
        try:
            return explore(seed)
        except CorruptFile:
            return False

    assert not all(survives(seed) for seed in range(SEEDS))

"""The catalog on stores: what is written is read back, and nobody overwrites anybody."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.control.catalog import Catalog, Drop, Head, Manifest, StatementKind
from penstock.control.catalog.codec import encode
from penstock.control.catalog.manifest import HEAD
from penstock.control.catalog.texts import BATCH
from penstock.errors import CatalogConflict, CatalogError, CorruptFile, DuplicateName, UsageError
from penstock.store.backends import MAX_DOCUMENT
from penstock.store.base import Document, Store
from penstock.store.memory import MemoryStore
from penstock.store.sqlite import SqliteStore
from tests.control.catalog.support import after, create, digests, is_valid, names, texts

Stores = tuple[Store, Store]


def test_an_empty_store_has_the_empty_catalog(stores: Stores) -> None:
    assert Catalog(stores[0]).read() == Manifest(0, ())
    assert Catalog(stores[0]).find("a") is None


def test_everybody_reads_what_was_made(stores: Stores) -> None:
    one, other = Catalog(stores[0]), Catalog(stores[1])
    made = one.change(create("orders", kind=StatementKind.TABLE, sql="CREATE TABLE größe;"), by="ana@host")
    assert (made.version, made.what, made.by) == (1, "create table orders", "ana@host")
    assert other.change(create("daily", "orders")).version == 2
    for catalog in (one, other, Catalog(stores[0])):
        manifest = catalog.read()
        assert manifest.version == 2
        assert [(s.name, s.kind, s.sql, s.needs) for s in manifest.statements] == [
            ("orders", "table", "CREATE TABLE größe", ()),
            ("daily", "view", "CREATE VIEW daily", ("orders",)),
        ]
        assert "ana@host" in manifest.statements[0].created
        assert catalog.find("daily") == manifest.statements[1]
    assert [logged.what for logged in other.head().history] == ["create table orders", "create view daily"]


def test_a_replaced_text_is_read_anew(stores: Stores) -> None:
    one, other = Catalog(stores[0]), Catalog(stores[1])
    one.change(create("a", sql="SELECT 1"))
    assert other.read().statements[0].sql == "SELECT 1"
    one.change(create("a", sql="SELECT 2", replace=True))
    assert other.read().statements[0].sql == "SELECT 2"
    one.change(Drop("a"))
    assert other.read() == Manifest(3, ())


def test_an_expected_version_is_the_one_that_is_changed(stores: Stores) -> None:
    catalog = Catalog(stores[0])
    catalog.change(create("a"), expected=0)
    catalog.change(create("b"), expected=1, by="bo@host")
    with pytest.raises(CatalogConflict, match="version 2: create view b, by bo@host"):
        catalog.change(create("c"), expected=1)
    assert names(catalog.head()) == ["a", "b"]


def test_an_expected_version_is_kept_to_in_a_lost_race() -> None:
    class Racing(MemoryStore):
        """Somebody else is faster than the first head that is written here."""

        faster = True

        def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
            if key == HEAD and self.faster:
                self.faster = False
                Catalog(self).change(create("theirs"), by="bo@host")
            return super().cas(key, expected, value)

    with pytest.raises(CatalogConflict, match="create view theirs, by bo@host"):
        Catalog(Racing()).change(create("mine"), expected=0)
    store = Racing()
    assert Catalog(store).change(create("mine")).version == 2
    assert names(Catalog(store).head()) == ["theirs", "mine"]
    with pytest.raises(DuplicateName):
        Catalog(Racing()).change(create("theirs"))


def test_a_refused_change_leaves_nothing(stores: Stores) -> None:
    catalog = Catalog(stores[0])
    catalog.change(create("a"))
    before = list(stores[0].scan(""))
    for change, expected in ((create("a"), None), (create("b", "nope"), None), (create("b"), 7)):
        with pytest.raises((UsageError, DuplicateName, CatalogConflict)):
            catalog.change(change, expected=expected)
    assert list(stores[0].scan("")) == before


def test_texts_that_nothing_refers_to_are_removed(stores: Stores) -> None:
    catalog = Catalog(stores[0])
    catalog.change(create("a", sql="SELECT 0"))
    catalog.change(create("twin", sql="SELECT 0"))
    for i in range(5):
        catalog.change(create("a", sql=f"SELECT {i}", replace=True))
        assert texts(stores[1]) == digests(catalog.head())
    catalog.change(Drop("a"))
    catalog.change(Drop("twin"))
    assert texts(stores[1]) == set()


def test_a_large_catalog_is_swept_bit_by_bit(stores: Stores) -> None:
    catalog = Catalog(stores[0])
    catalog.change(create("root"))
    for i in range(3 * BATCH):
        catalog.change(create(f"n{i}", "root"))
    catalog.change(Drop("root", cascade=True))
    for i in range(200):
        catalog.change(create("a", sql=f"SELECT {i}", replace=True))
        if texts(stores[1]) == digests(catalog.head()):
            return
    raise AssertionError(f"{len(texts(stores[1]))} texts are left")


def test_a_text_that_was_superseded_while_it_was_read_is_not_missed() -> None:
    class Overtaken(MemoryStore):
        """Somebody replaces a text between the reading of the head and of the texts, a few times."""

        changes = 0

        def get_many(self, keys: Sequence[str]) -> Sequence[Document | None]:
            if self.changes:
                self.changes -= 1
                Catalog(self).change(create("a", sql=f"SELECT {self.changes}", replace=True))
            return super().get_many(keys)

    store = Overtaken()
    Catalog(store).change(create("a"))
    store.changes = 3
    manifest = Catalog(store).read()
    assert (manifest.version, manifest.statements[0].sql) == (4, "SELECT 0")


def test_a_lost_text_is_told_by_name_and_can_be_given_again(stores: Stores) -> None:
    store, catalog = stores[0], Catalog(stores[0])
    catalog.change(create("a"))
    catalog.change(create("b", "a"))
    (lost,) = digests(after(create("a")))
    document = store.get(f"catalog/ddl/{lost}")
    assert document is not None
    store.cas(document.key, document.version, None)
    with pytest.raises(CorruptFile, match="lost the text of view a") as raised:
        catalog.read()
    assert "--replace" in (raised.value.hint or "")
    assert catalog.find("b") is not None
    catalog.change(create("a", replace=True))
    assert names(catalog.head()) == [s.name for s in catalog.read().statements] == ["a", "b"]


def test_a_wrong_text_is_not_replayed(stores: Stores) -> None:
    store, catalog = stores[0], Catalog(stores[0])
    catalog.change(create("a"))
    (document,) = store.scan("catalog/ddl/")
    store.cas(document.key, document.version, b"DROP EVERYTHING\xff")
    with pytest.raises(CorruptFile, match="does not hold the text"):
        catalog.read()


def test_a_head_that_cannot_be_read_is_never_overwritten(stores: Stores) -> None:
    store, catalog = stores[0], Catalog(stores[0])
    version = store.cas(HEAD, 0, b"garbage")
    for attempt in (catalog.read, catalog.head, lambda: catalog.change(create("a"))):
        with pytest.raises(CorruptFile):
            attempt()
    assert version is not None and store.cas(HEAD, version, b'{"format": 2}')
    for attempt in (catalog.read, catalog.head, lambda: catalog.change(create("a"))):
        with pytest.raises(CatalogError, match="format 2"):
            attempt()
    assert [document.value for document in store.scan("catalog/")] == [b'{"format": 2}']


def add_many(catalog: Catalog) -> None:
    for i in range(20):
        catalog.change(create(f"{'x' * 80}{i:04}"))


def test_a_full_catalog_refuses_more_and_stays_usable() -> None:
    store = MemoryStore()
    (entry,) = after(create(f"{'n' * 80}0000")).entries
    row = len(encode(Head(1, (entry, entry)))) - len(encode(Head(1, (entry,))))
    count = MAX_DOCUMENT // row - 5
    full = Head(count, tuple(replace(entry, name=f"{'n' * 80}{i:04}") for i in range(count)))
    store.cas(HEAD, 0, encode(full))
    catalog = Catalog(store)
    with pytest.raises(UsageError, match="no room for more"):
        add_many(catalog)
    before = catalog.head()
    assert len(before.entries) > count
    catalog.change(Drop(full.entries[0].name))
    assert catalog.head().entries == before.entries[1:]


def test_no_change_of_many_threads_is_lost(stores: Stores) -> None:
    each, threads = 8, 6
    Catalog(stores[0]).change(create("base"))

    def work(t: int) -> None:
        catalog = Catalog(stores[t % 2])
        for i in range(each):
            catalog.change(create(f"t{t}.n{i}", "base", *([f"t{t}.n{i - 1}"] if i else [])))
        catalog.change(Drop(f"t{t}.n{each - 1}"))

    workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    manifest = Catalog(stores[0]).read()
    assert manifest.version == 1 + threads * (each + 1)
    assert is_valid(manifest.statements)
    assert {s.name for s in manifest.statements} == {"base"} | {
        f"t{t}.n{i}" for t in range(threads) for i in range(each - 1)
    }
    assert [logged.version for logged in Catalog(stores[0]).head().history] == list(
        range(1, manifest.version + 1)
    )


WRITER = """
import sys
from penstock.control.catalog import Catalog, Create, Statement, StatementKind
from penstock.store.sqlite import SqliteStore
catalog = Catalog(SqliteStore(sys.argv[1]))
for i in range(12):
    catalog.change(Create(Statement(f"{sys.argv[2]}.n{i}", StatementKind.VIEW, f"SELECT {i}", ("base",))))
"""


def test_no_change_of_several_processes_is_lost(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "s.db") as store:
        Catalog(store).change(create("base"))
        workers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "s.db"), f"p{n}"])
            for n in range(3)
        ]
        assert [worker.wait(60) for worker in workers] == [0, 0, 0]
        manifest = Catalog(store).read()
        assert manifest.version == 37
        assert {s.name for s in manifest.statements} == {"base"} | {
            f"p{n}.n{i}" for n in range(3) for i in range(12)
        }
        assert texts(store) == digests(Catalog(store).head())


def test_of_those_who_expect_the_same_version_one_wins(stores: Stores) -> None:
    won: list[int] = []

    def work(n: int) -> None:
        try:
            Catalog(stores[n % 2]).change(create(f"n{n}"), expected=0)
        except CatalogConflict:
            return
        won.append(n)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert names(Catalog(stores[0]).head()) == [f"n{n}" for n in won]
    assert len(won) == 1

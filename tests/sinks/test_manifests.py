"""The tree of manifests: it stays small at its root, and keeps every batch in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CorruptFile
from penstock.sinks.parquet import manifests as module
from penstock.sinks.parquet.manifests import BatchEntry, Levels, Manifests, grown, in_order, last_batch
from penstock.storage import FileRecord, Storage

FAN = 4


@pytest.fixture(autouse=True)
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FAN", FAN)


def entry(batch: int, files: int = 1) -> BatchEntry:
    records = tuple(FileRecord(f"rows/{batch}-{n}.parquet", 1, 10, "0" * 64) for n in range(files))
    return BatchEntry(batch, batch // 2, 1, records)


@pytest.fixture
def tree(tmp_path: Path) -> Manifests:
    return Manifests(Storage(tmp_path), "log")


def grow(tree: Manifests, count: int, files: int = 1) -> Levels:
    levels: Levels = ()
    for batch in range(count):
        levels, needless = grown(levels, tree.add(entry(batch, files)), tree.fold)
        for node in needless:
            tree._storage.delete(tree.path(node))
    return levels


@pytest.mark.parametrize("count", [0, 1, FAN - 1, FAN, FAN + 1, FAN * FAN - 1, FAN * FAN, FAN * FAN + 3])
def test_every_batch_is_found_in_order(tree: Manifests, count: int) -> None:
    found = tree.read(in_order(grow(tree, count)))
    assert found.entries == tuple(entry(batch) for batch in range(count))


def test_the_root_grows_with_the_levels_only(tree: Manifests) -> None:
    levels = grow(tree, FAN * FAN * 2 + FAN + 1)
    assert [len(nodes) for nodes in levels] == [1, 1, 2]


def test_manifests_of_many_files_are_referred_to_and_not_copied(
    tree: Manifests, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "COPIED", 10)
    levels = grow(tree, FAN + 2, files=3)
    found = tree.read(in_order(levels))
    assert found.entries == tuple(entry(batch, 3) for batch in range(FAN + 2))
    assert len(found.nodes) == 1 + FAN + 2
    assert max(size for _, size in Storage(tmp_path).list("log")) < 5000


def test_only_what_is_wanted_is_read(tree: Manifests, tmp_path: Path) -> None:
    levels = grow(tree, FAN * 3)
    for node in in_order(levels)[:1]:
        Storage(tmp_path).delete(tree.path(node))
    found = tree.read(in_order(levels), lambda node: node.last >= FAN)
    assert [each.batch for each in found.entries] == list(range(FAN, FAN * 3))


def test_a_manifest_that_is_missing_or_changed_is_named(tree: Manifests, tmp_path: Path) -> None:
    node = tree.add(entry(0))
    (tmp_path / tree.path(node)).write_bytes(b"{}")
    with pytest.raises(CorruptFile, match="checksum"):
        tree.read([node])
    Storage(tmp_path).delete(tree.path(node))
    with pytest.raises(CorruptFile, match="missing"):
        tree.read([node])


def test_a_path_tells_its_newest_batch(tree: Manifests) -> None:
    path = tree.path(tree.add(entry(77)))
    folder, _, name = path.rpartition("/")
    assert last_batch(path) == last_batch(f"{folder}/.{name}.0123abcd.tmp") == 77
    assert last_batch("log/other.json") is None

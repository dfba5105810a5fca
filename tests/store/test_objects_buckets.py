"""What the object store relies on in its buckets: removals, and files that a power failure cannot undo."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.durable import sync_folder
from penstock.store.objects import ObjectStore, directory
from penstock.store.objects.bucket import Bucket
from penstock.store.objects.directory import DirectoryBucket
from penstock.store.objects.names import folder_of, version_name
from penstock.store.objects.remote import RemoteBucket
from tests.store.objects_faults import MovedClock, make_faulty

Event = tuple[str, Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[ObjectStore]:
    with ObjectStore(f"file://{root}") as opened:
        yield opened


@pytest.fixture
def other(root: Path) -> Iterator[ObjectStore]:
    with ObjectStore(f"file://{root}") as opened:
        yield opened


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What is synced and unlinked, in that order."""
    done: list[Event] = []
    sync, unlink = os.fsync, os.unlink

    def record_sync(descriptor: int) -> None:
        done.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    def record_unlink(path: Path) -> None:
        done.append(("unlink", Path(path)))
        unlink(path)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "unlink", record_unlink)
    return done


# removals


@pytest.mark.parametrize("missing", [0, 3, 29])
@pytest.mark.parametrize("kind", ["directory", "one by one"])
def test_a_missing_object_does_not_keep_the_others(root: Path, kind: str, missing: int) -> None:
    """Obstore removes the objects of a directory one by one, as it does those of Google Cloud Storage."""
    root.mkdir()
    bucket: Bucket = DirectoryBucket(root) if kind == "directory" else RemoteBucket(f"file://{root}")
    names = [f"k/{version_name(number)}" for number in range(30)]
    for name in names:
        bucket.create(name, b"")
    (root / names[missing]).unlink()
    bucket.delete(names)
    assert bucket.list("k") == []
    bucket.delete(names)
    bucket.close()


def test_a_document_stays_deleted_where_two_remove_it_at_once(root: Path) -> None:
    root.mkdir()
    with ObjectStore(f"file://{root}") as store, ObjectStore(f"file://{root}") as other:
        for each in (store, other):
            each._versions._bucket = RemoteBucket(f"file://{root}")
        version = store.cas("k", 0, b"")
        for _ in range(5):
            version = store.cas("k", version or 0, b"")
        faulty = make_faulty(store)
        delete = faulty.delete

        def prune_first(paths: list[str]) -> None:
            other._versions.bucket.delete(paths[:1])
            delete(paths)

        faulty.delete = prune_first  # type: ignore[method-assign,assignment]
        last = store.cas("k", version or 0, None)
        assert last is not None
        assert other.get("k") is None
        again = other.cas("k", 0, b"")
        assert again is not None and again > last


# power failures


def test_what_a_tombstone_covers_is_gone_for_good_before_it_goes(
    root: Path, store: ObjectStore, events: list[Event]
) -> None:
    version = store.cas("k", 0, b"")
    last = store.cas("k", version or 0, None)
    folder = root / folder_of("k")
    assert last is not None and not folder.exists()
    unlinked = [i for i, event in enumerate(events) if event in _unlinks(folder, range(1, last))]
    gone = events.index(("unlink", folder / version_name(last)))
    assert len(unlinked) == last - 1
    assert ("sync", folder) in events[max(unlinked) : gone]


def test_what_others_removed_is_gone_for_good_before_the_tombstone_goes(
    root: Path, store: ObjectStore, other: ObjectStore, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever removed it may have been killed right afterwards."""
    clock, folder = MovedClock(monkeypatch), root / folder_of("k")
    version = store.cas("k", 0, b"")
    make_faulty(store).removed += [0] * 10
    last = store.cas("k", version or 0, None)
    assert last is not None
    assert other.list("") == []
    for path in folder.iterdir():
        if path.name != version_name(last):
            path.unlink()
    clock.pass_time(31)
    events.clear()
    assert other.list("") == []
    gone = events.index(("unlink", folder / version_name(last)))
    assert ("sync", folder) in events[:gone]


def test_a_floor_that_another_process_raised_is_there_for_good_before_a_tombstone_goes(
    root: Path, store: ObjectStore, other: ObjectStore, events: list[Event]
) -> None:
    version = store.cas("k", 0, b"")
    other.cas("high", 0, b"")
    for number in range(2, 8):
        other.cas("high", number, b"")
    other.cas("high", 8, None)
    events.clear()
    last = store.cas("k", version or 0, None)
    assert last is not None
    gone = events.index(("unlink", root / folder_of("k") / version_name(last)))
    assert ("sync", root / "f") in events[:gone]


def _unlinks(folder: Path, numbers: range) -> set[Event]:
    return {("unlink", folder / version_name(number)) for number in numbers}


# folders that others remove


def test_an_object_that_is_removed_with_its_folder_right_away_is_made_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = root / "k/v1"
    links: list[Path] = []
    link = os.link

    def late(folder: Path, *, missing_ok: bool = False) -> None:
        if target.exists() and len(links) == 1:
            target.unlink()
            target.parent.rmdir()
        sync_folder(folder, missing_ok=missing_ok)

    def record(source: Path, made: Path) -> None:
        link(source, made)
        links.append(made)

    monkeypatch.setattr(directory, "sync_folder", late)
    monkeypatch.setattr(os, "link", record)
    DirectoryBucket(root).create("k/v1", b"")
    assert links == [target]
    assert not target.parent.exists()


def test_an_object_is_made_although_its_folder_is_removed_before(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, removals = DirectoryBucket(root), [1, 1]
    opened = Path.open

    def late(path: Path, mode: str = "r") -> object:
        if mode == "xb" and removals:
            removals.pop()
            path.parent.rmdir()
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", late)
    bucket.create("k/v1", b"made")
    assert not removals
    assert bucket.read("k/v1") == b"made"

"""The object store in a directory; what is said here holds for buckets, too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import CorruptFile, StorageFull, StoreUnavailable, UsageError
from penstock.store.base import Store, Write
from penstock.store.conformance import StoreConformance
from penstock.store.objects import ObjectStore
from penstock.store.objects import store as objects
from penstock.store.objects.names import folder_of
from tests.store.objects_faults import (
    Fault,
    FaultyBucket,
    MovedClock,
    after_doing,
    failed,
    lost,
    make_faulty,
    numbers,
    retried,
    said_to_exist,
    unreadable,
)


class TestObjectStoreInADirectory(StoreConformance):
    ttl = 0.6

    @pytest.fixture
    def stores(self, url: str) -> Iterator[tuple[Store, Store]]:
        with ObjectStore(url) as one, ObjectStore(url) as other:
            yield one, other


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/new/store"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the versions of the document "k" are."""
    return tmp_path / "new" / "store" / folder_of("k")


@pytest.fixture
def store(url: str) -> Iterator[ObjectStore]:
    with ObjectStore(url) as opened:
        yield opened


@pytest.fixture
def other(url: str) -> Iterator[ObjectStore]:
    with ObjectStore(url) as opened:
        yield opened


@pytest.fixture
def bucket(store: ObjectStore) -> FaultyBucket:
    return make_faulty(store)


@pytest.fixture
def time_machine(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    return MovedClock(monkeypatch)


FIRST = 2
"""The version that a document begins with where nothing was ever deleted: there is ground below it."""


def value(store: Store, key: str = "k") -> bytes | None:
    document = store.get(key)
    return document.value if document else None


def write(store: Store, times: int, key: str = "k") -> None:
    """That many more versions."""
    for _ in range(times):
        document = store.get(key)
        version = document.version if document else 0
        assert store.cas(key, version, b"%d" % (version + 1 if version else FIRST)) == max(version + 1, FIRST)


# answers that are lost


@pytest.mark.parametrize("fault", [lost, failed, retried, said_to_exist])
def test_a_write_whose_answer_was_lost_is_made_once(
    store: ObjectStore, other: ObjectStore, bucket: FaultyBucket, fault: Fault
) -> None:
    write(store, 1)
    bucket.faults.append(fault)
    assert store.cas("k", 2, b"mine") == 3
    document = other.get("k")
    assert document is not None and (document.value, document.version) == (b"mine", 3)


@pytest.mark.parametrize("ground", [lost, failed, retried, said_to_exist])
@pytest.mark.parametrize("first", [lost, failed, retried, said_to_exist])
def test_a_creation_whose_answers_were_lost_is_made_once(
    store: ObjectStore, other: ObjectStore, bucket: FaultyBucket, ground: Fault, first: Fault
) -> None:
    bucket.faults += [ground]
    if ground is failed or ground is said_to_exist:
        bucket.faults += [lambda create: create()]
    bucket.faults += [first]
    version = store.cas("k", 0, b"mine")
    document = other.get("k")
    assert document is not None and (document.value, document.version) == (b"mine", version)


@pytest.mark.parametrize("fault", [lost, failed])
def test_a_write_that_stays_open_is_no_conflict(
    store: ObjectStore, other: ObjectStore, bucket: FaultyBucket, fault: Fault
) -> None:
    write(store, 1)
    bucket.faults.append(fault)
    bucket.before_read.append(unreadable)
    with pytest.raises(StoreUnavailable):
        store.cas("k", 2, b"mine")
    assert value(other) == (b"mine" if fault is lost else b"2")


def test_a_write_that_always_fails_ends(store: ObjectStore, bucket: FaultyBucket) -> None:
    bucket.faults += [failed] * 20
    with pytest.raises(StoreUnavailable, match="request was lost"):
        store.cas("k", 0, b"mine")
    assert len(bucket.faults) > 10
    bucket.faults = [said_to_exist] * 20
    with pytest.raises(StoreUnavailable, match="said to exist"):
        store.cas("k", 0, b"mine")


def test_somebody_elses_version_is_a_conflict(
    store: ObjectStore, other: ObjectStore, bucket: FaultyBucket
) -> None:
    bucket.faults.append(after_doing(lambda: other.cas("k", 0, b"theirs")))
    assert store.cas("k", 0, b"mine") is None
    bucket.faults.append(failed)
    assert store.cas("k", 0, b"mine") is None
    assert value(store) == b"theirs"


# reading


def test_a_version_that_is_removed_while_it_is_read_gives_way_to_the_newest(
    store: ObjectStore, other: ObjectStore, bucket: FaultyBucket, folder: Path
) -> None:
    def replace() -> None:
        write(other, 20)
        assert 2 not in numbers(folder)

    write(other, 1)
    bucket.before_read.append(replace)
    assert value(store) == b"22"


def test_a_list_reads_no_more_than_it_gives(store: ObjectStore, bucket: FaultyBucket) -> None:
    store.cas_many([Write(f"p/{i:02d}", 0, b"") for i in range(20)])
    for i in (1, 3, 5):
        store.cas(f"p/{i:02d}", 2, None)
    bucket.requests.clear()
    assert [d.key for d in store.list("p/", limit=4)] == ["p/00", "p/02", "p/04", "p/06"]
    # Each version is read with the one before it.
    assert bucket.requests == ["list"] + ["read"] * 8
    assert len(list(store.scan("p/", page=3))) == 17
    assert bucket.requests.count("list") == 2


def test_a_list_looks_at_nothing_beside_its_folder(store: ObjectStore, bucket: FaultyBucket) -> None:
    store.cas_many([Write(f"{top}/{i}", 0, b"") for top in "ab" for i in range(5)])
    bucket.listed.clear()
    assert len(store.list("a/")) == 5
    assert {path.split("/")[1] for path in bucket.listed} == {"a"}


def test_a_cursor_costs_no_request(store: ObjectStore, bucket: FaultyBucket) -> None:
    assert store.revision() == 0
    assert not bucket.requests


def test_a_watch_gives_a_flood_in_pieces(
    store: ObjectStore, other: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_WATCH_LIMIT", 3)
    since = store.revision()
    other.cas_many([Write(f"w/{i}", 0, b"") for i in range(8)])
    seen: list[str] = []
    while changes := store.watch("w/", since, 0):
        if not changes.changes:
            break
        assert len(changes.changes) <= 3
        seen += [change.key for change in changes.changes]
        since = changes.until
    assert seen == [f"w/{i}" for i in range(8)]


def test_a_watch_is_not_told_what_this_handle_wrote_before(store: ObjectStore) -> None:
    write(store, 3)
    since = store.revision()
    assert store.watch("", since, 0).changes == ()
    write(store, 1)
    assert [change.version for change in store.watch("", since, 0).changes] == [5]


def test_what_replaces_a_change_while_it_is_fetched_is_told_instead(
    store: ObjectStore, other: ObjectStore, bucket: FaultyBucket, folder: Path
) -> None:
    def replace() -> None:
        write(other, 20)
        assert 2 not in numbers(folder)

    write(other, 1)
    bucket.before_read.append(replace)
    changes, until = store.watch("", 0, 5)
    assert [(change.value, change.version) for change in changes] == [(b"22", 22)]
    assert not store.watch("", until, 0).changes


# files


def test_a_file_is_whole_before_it_has_its_name(
    store: ObjectStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, Path]] = []
    fsync, link = os.fsync, os.link

    def record_sync(descriptor: int) -> None:
        events.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def record_link(source: Path, target: Path) -> None:
        events.append(("link", target))
        link(source, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "link", record_link)
    write(store, 1)
    for name in ("v0000000000000001.json", "v0000000000000002.json"):
        linked = events.index(("link", folder / name))
        assert events[linked + 1] == ("sync", folder)
        made = [path for event, path in events[:linked] if event == "sync"]
        assert any(path.name.startswith(f"{name}#") for path in made)
        assert {folder.parent, folder.parent.parent, tmp_path / "new", tmp_path} <= set(made)


def test_what_is_no_version_is_left_alone(store: ObjectStore, folder: Path) -> None:
    write(store, 1)
    (folder / "v0000000000000009.json#1a2b").write_bytes(b'{"half')
    (folder / "notes.txt").write_bytes(b"")
    (folder.parent / "stranger").mkdir()
    (folder.parent / "stranger" / "v0000000000000001.json").write_bytes(b"")
    assert value(store) == b"2"
    assert [d.key for d in store.list("")] == ["k"]


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"id": "x", "after": null, "blob": ""}'])
def test_a_version_that_is_not_ours_is_named(store: ObjectStore, folder: Path, body: bytes) -> None:
    write(store, 1)
    (folder / "v0000000000000003.json").write_bytes(body)
    with pytest.raises(CorruptFile, match=r"d/k\.doc/v0000000000000003\.json") as caught:
        store.get("k")
    assert caught.value.hint


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with ObjectStore(f"file://{tmp_path}/file/store") as store:
        with pytest.raises(UsageError, match="permissions"):
            store.cas("k", 0, b"")
        with pytest.raises(UsageError):
            store.list("")


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    with ObjectStore(f"file://{tmp_path}/with%20space%23/") as store:
        write(store, 1)
    assert (tmp_path / "with space#" / "d").is_dir()


@pytest.mark.parametrize("url", ["file://relative/path", "file:///", "s3://", "ftp://host/x", "bucket/x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="does not name a bucket"):
        ObjectStore(url)


def test_a_closed_store_says_so(url: str) -> None:
    store = ObjectStore(url)
    session = store.session(60)
    store.close()
    store.close()
    for use in (lambda: store.get("k"), lambda: store.list(""), session.keepalive):
        with pytest.raises(UsageError, match="was closed"):
            use()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(mount)], capture_output=True
    )
    if made.returncode:
        pytest.skip("mounting a small disk needs root")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_disk_halts_and_keeps_what_was_committed(small_disk: Path) -> None:
    store = ObjectStore(f"file://{small_disk}/store")
    written: list[int] = []

    def fill() -> None:
        for i in range(1000):
            store.cas(f"k{i}", 0, os.urandom(8000))
            written.append(i)

    with pytest.raises(StorageFull) as caught:
        fill()
    assert caught.value.hint
    assert len(store.list("")) == len(written) > 5
    assert not list(small_disk.rglob("*#*"))


# processes


INCREMENT = """
import sys
from penstock.store.objects import ObjectStore
store, acked = ObjectStore(sys.argv[1]), 0
while acked < int(sys.argv[2]):
    document = store.get("n")
    if store.cas("n", document.version, b"%d" % (int(document.value) + 1)):
        acked += 1
        print(acked, flush=True)
"""


def test_two_processes_lose_nothing_when_one_is_killed(store: ObjectStore, url: str) -> None:
    store.cas("n", 0, b"0")
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", INCREMENT, url, str(count)], stdout=subprocess.PIPE, text=True
        )
        for count in (150, 1_000_000)
    ]
    victim = workers[1]
    assert victim.stdout is not None
    for _ in range(50):
        victim.stdout.readline()
    victim.kill()
    # What was read ahead is in the stream, where communicate would not look.
    acked = 50 + len(victim.stdout.read().split())
    victim.communicate(timeout=30)
    workers[0].communicate(timeout=60)
    assert workers[0].returncode == 0
    # One increment may have been made without being reported: the victim died in between.
    assert int(value(store, "n") or b"") - (150 + acked) in (0, 1)


def test_it_works_in_a_forked_child_while_the_parent_goes_on(store: ObjectStore) -> None:
    session = store.session(60)
    write(store, 1)
    child = os.fork()
    if child == 0:
        good = store.cas("k", 2, b"child") and store.alive([session.id])
        store.close()
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert value(store) == b"child"
    assert store.cas("k", 3, b"parent again")


def test_only_buckets_need_their_library(url: str) -> None:
    code = (
        "import sys, penstock.store; from penstock.store.objects import ObjectStore\n"
        "ObjectStore(sys.argv[1]).cas('k', 0, b'')\n"
        "sys.exit('obstore' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, url]).returncode == 0

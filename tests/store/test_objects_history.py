"""What is removed of a document's history, and those who come late: stale writers, slow readers, old data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import StoreUnavailable
from penstock.store.objects import ObjectStore
from penstock.store.objects.names import folder_of, version_name
from tests.store.objects_faults import (
    FaultyBucket,
    MovedClock,
    after_doing,
    before_doing,
    grow_old,
    make_faulty,
    numbers,
)
from tests.store.test_objects import value, write

DAY = 86_400.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def folder(root: Path) -> Path:
    """Where the versions of the document "k" are."""
    return root / folder_of("k")


@pytest.fixture
def store(root: Path) -> Iterator[ObjectStore]:
    with ObjectStore(f"file://{root}") as opened:
        yield opened


@pytest.fixture
def other(root: Path) -> Iterator[ObjectStore]:
    with ObjectStore(f"file://{root}") as opened:
        yield opened


@pytest.fixture
def bucket(store: ObjectStore) -> FaultyBucket:
    return make_faulty(store)


@pytest.fixture
def time_machine(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    return MovedClock(monkeypatch)


def delete(store: ObjectStore, key: str = "k") -> int:
    document = store.get(key)
    assert document is not None
    version = store.cas(key, document.version, None)
    assert version is not None
    return version


def begin(store: ObjectStore) -> None:
    assert store.cas("k", 0, b"new")


def files(root: Path, top: str) -> list[str]:
    return [path.name for path in (root / top).rglob("*")]


# what is removed


def test_few_versions_stay_however_fast_they_come(store: ObjectStore, folder: Path) -> None:
    write(store, 100)
    assert numbers(folder)[-12:] == list(range(90, 102))
    assert len(numbers(folder)) <= 20


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_what_stays_does_not_depend_on_the_times_of_files(
    store: ObjectStore, folder: Path, step: float
) -> None:
    write(store, 10)
    grow_old(folder, step)
    write(store, 14)
    assert numbers(folder) == list(range(13, 26))


def test_nothing_stays_of_a_document_that_was_deleted(root: Path, store: ObjectStore) -> None:
    for i in range(5):
        store.cas(f"a/b{i}/c", 0, b"")
        delete(store, f"a/b{i}/c")
    assert files(root, "d") == []
    assert len(files(root, "f")) == 1


def test_versions_grow_although_nothing_is_left(store: ObjectStore, other: ObjectStore, root: Path) -> None:
    last = 0
    for handle in (store, other, store, ObjectStore(store.url)):
        created = handle.cas("k", 0, b"")
        assert created is not None and created > last
        assert other.cas("k", last, b"stale") is None
        last = delete(handle)
    assert files(root, "d") == []


def test_what_is_gone_costs_nothing(store: ObjectStore, other: ObjectStore) -> None:
    """The last three of many, as the control plane reads its decisions."""
    bucket = make_faulty(other)

    def cost(epochs: range) -> tuple[int, int]:
        for epoch in epochs:
            store.cas(f"e/{epoch:08}", 0, b"decided")
            if epoch >= 3:
                delete(store, f"e/{epoch - 3:08}")
        bucket.requests.clear()
        bucket.listed.clear()
        assert [d.key for d in other.list("e/")] == [f"e/{epoch:08}" for epoch in epochs[-3:]]
        other.watch("e/", other.revision(), 0)
        return len(bucket.requests), len(bucket.listed)

    assert cost(range(20)) == cost(range(20, 120)) == cost(range(120, 240))


def test_a_watch_is_told_of_a_deletion_that_left_nothing(store: ObjectStore, other: ObjectStore) -> None:
    write(other, 1)
    assert store.get("k") is not None
    since = store.revision()
    version = delete(other)
    changes, until = store.watch("", since, 0)
    assert [(change.key, change.value, change.version) for change in changes] == [("k", None, version)]
    assert not store.watch("", until, 0).changes


def test_what_a_killed_process_left_is_removed_by_others(
    root: Path, store: ObjectStore, other: ObjectStore, time_machine: MovedClock
) -> None:
    write(store, 3)
    bucket = make_faulty(store)
    bucket.delete = _killed  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        delete(store)
    bucket.faults += [lambda create: create(), _killed]
    with pytest.raises(KeyboardInterrupt):
        store.cas("begun", 0, b"")
    assert len(files(root, "d")) > 4
    for _ in range(2):
        assert other.list("") == []
        time_machine.pass_time(31)
    assert other.list("") == []
    assert files(root, "d") == []
    assert other.cas("k", 0, b"") and other.cas("begun", 0, b"")


def test_a_removal_that_ends_half_way_does_not_bring_a_document_back(
    root: Path, store: ObjectStore, other: ObjectStore, bucket: FaultyBucket
) -> None:
    write(store, 5)
    bucket.removed.append(2)
    last = delete(store)
    assert value(other) is None
    assert files(root, "d") == []
    version = other.cas("k", 0, b"new")
    assert version is not None and version > last


def test_a_tombstone_stays_while_anything_below_it_does(
    folder: Path, store: ObjectStore, other: ObjectStore, bucket: FaultyBucket, time_machine: MovedClock
) -> None:
    write(store, 5)
    bucket.removed += [1] * 3 + [0] * 10
    last = delete(store)
    assert numbers(folder)[-1] == last and len(numbers(folder)) > 2
    assert value(other) is None
    for _ in range(2):
        assert other.list("") == []
        time_machine.pass_time(31)
    assert other.list("") == []
    assert not folder.exists()
    version = other.cas("k", 0, b"new")
    assert version is not None and version > last


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


# writers that sleep between what they read and what they write


def go_on(other: ObjectStore) -> None:
    write(other, 25)


def end(other: ObjectStore) -> None:
    delete(other)


def begin_anew(other: ObjectStore) -> None:
    delete(other)
    assert other.cas("k", 0, b"new")


def begin_anew_and_go_on(other: ObjectStore) -> None:
    delete(other)
    assert other.cas("k", 0, b"new")
    write(other, 15)


MEANWHILE = [go_on, end, begin_anew, begin_anew_and_go_on]


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("written", [b"stale", None])
def test_a_stale_write_is_refused_however_late_it_comes_and_whatever_clocks_say(
    store: ObjectStore,
    other: ObjectStore,
    root: Path,
    meanwhile: Callable[[ObjectStore], None],
    written: bytes | None,
) -> None:
    write(store, 1)
    bucket = make_faulty(store)
    expected: list[bytes | None] = []

    def steps() -> None:
        grow_old(root / folder_of("k"), -DAY if written else DAY)
        meanwhile(other)
        expected.append(value(other))

    bucket.faults.append(after_doing(steps))
    assert store.cas("k", 2, written) is None
    for handle in (store, other, ObjectStore(store.url)):
        assert value(handle) == expected[0]
        assert [document.value for document in handle.list("")] == [v for v in expected if v is not None]


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_who_once_read_a_version_cannot_write_upon_it_any_more(
    store: ObjectStore, other: ObjectStore, meanwhile: Callable[[ObjectStore], None]
) -> None:
    write(store, 1)
    meanwhile(other)
    before = value(other)
    assert store.cas("k", 2, b"stale") is None
    assert store.cas("k", 2, None) is None
    assert value(store) == value(other) == before


def test_a_creation_that_slept_begins_above_all_that_was(store: ObjectStore, other: ObjectStore) -> None:
    bucket = make_faulty(store)
    ends: list[int] = []

    def live() -> None:
        write(other, 5)
        ends.append(delete(other))

    bucket.faults += [after_doing(live)]
    version = store.cas("k", 0, b"late")
    assert version is not None and version > ends[0]
    assert value(other) == b"late"


def test_a_creation_on_ground_that_was_removed_begins_above_all_that_was(
    store: ObjectStore, other: ObjectStore
) -> None:
    bucket = make_faulty(store)
    ends: list[int] = []

    def live() -> None:
        write(other, 5)
        ends.append(delete(other))

    bucket.faults += [lambda create: create(), after_doing(live)]
    version = store.cas("k", 0, b"late")
    assert version is not None and version > ends[0]
    assert value(other) == b"late"


def test_a_request_that_arrives_after_everything_changes_nothing(
    store: ObjectStore, other: ObjectStore, root: Path
) -> None:
    write(store, 4)
    folder = root / folder_of("k")
    body = (folder / version_name(4)).read_bytes()
    last = delete(other)
    folder.mkdir(parents=True)
    (folder / version_name(4)).write_bytes(body)
    for handle in (store, other, ObjectStore(store.url)):
        assert value(handle) is None
        assert handle.list("") == []
    version = other.cas("k", 0, b"new")
    assert version is not None and version > last
    assert value(store) == b"new"


def test_two_requests_that_arrive_after_everything_do_not_make_a_document(
    store: ObjectStore, other: ObjectStore, root: Path
) -> None:
    write(store, 4)
    folder = root / folder_of("k")
    body = (folder / version_name(5)).read_bytes()
    delete(other)
    folder.mkdir(parents=True)
    (folder / version_name(5)).write_bytes(body)
    (folder / version_name(4)).write_text(json.dumps({"id": "stale", "after": "x", "text": "stale"}))
    for handle in (store, other, ObjectStore(store.url)):
        assert value(handle) is None
        assert handle.list("") == []


def test_a_slow_write_that_others_built_upon_was_made(
    store: ObjectStore, other: ObjectStore, bucket: FaultyBucket
) -> None:
    write(store, 4)
    bucket.faults += [before_doing(lambda: write(other, 50))]
    assert store.cas("k", 5, b"slow") == 6
    assert value(store) == b"56"


def test_a_write_that_nobody_can_judge_any_more_stays_open(
    store: ObjectStore, other: ObjectStore, bucket: FaultyBucket
) -> None:
    write(store, 4)
    bucket.faults += [before_doing(lambda: write(other, 80))]
    with pytest.raises(StoreUnavailable, match="changes faster") as caught:
        store.cas("k", 5, b"slow")
    assert caught.value.left and caught.value.hint
    assert value(store) == b"86"


def test_a_write_whose_first_try_was_made_and_removed_is_not_called_refused(
    store: ObjectStore, other: ObjectStore, bucket: FaultyBucket
) -> None:
    write(store, 1)

    def lost_and_gone(create: Callable[[], None]) -> None:
        create()
        delete(other)
        raise StoreUnavailable("the answer was lost")

    bucket.faults += [lost_and_gone]
    with pytest.raises(StoreUnavailable):
        store.cas("k", 2, b"mine")
    assert value(other) is None


# slow readers


def test_what_came_late_does_not_become_history_by_what_is_built_above_it(
    root: Path, store: ObjectStore, other: ObjectStore, bucket: FaultyBucket
) -> None:
    write(other, 1)
    before, folder = _id(root, 2), root / folder_of("k")
    last = delete(other)
    folder.mkdir(parents=True)
    late = {"id": "stale", "after": before, "text": "stale"}
    (folder / version_name(last)).write_text(json.dumps(late))
    bucket.before_read.append(lambda: begin(other))
    assert value(store) == b"new"


@pytest.mark.parametrize("look", [value, lambda store: next(d.value for d in store.list(""))])
def test_a_slow_reader_does_not_take_a_stale_write_for_what_it_had_listed(
    root: Path, store: ObjectStore, other: ObjectStore, bucket: FaultyBucket, look: Callable[..., bytes]
) -> None:
    write(other, 4)
    stale = json.dumps({"id": "stale", "after": _id(root, 4), "text": "stale"}).encode()

    def replace() -> None:
        write(other, 20)
        assert 5 not in numbers(root / folder_of("k"))
        (root / folder_of("k") / version_name(5)).write_bytes(stale)

    bucket.before_read.append(replace)
    assert look(store) == b"25"


def test_a_busy_document_can_be_read(store: ObjectStore, other: ObjectStore, bucket: FaultyBucket) -> None:
    write(other, 1)
    bucket.before_read += [lambda: write(other, 1)] * 500
    assert store.get("k") is not None
    assert store.list("")


# what a write costs


def test_a_write_takes_three_requests(
    store: ObjectStore, bucket: FaultyBucket, time_machine: MovedClock
) -> None:
    time_machine.stop()
    write(store, 1)
    bucket.requests.clear()
    for version in range(2, 42):
        assert store.cas("k", version, b"")
    assert bucket.requests.count("create") == 40
    # Every eighth time a listing and perhaps a removal come on top.
    assert len(bucket.requests) <= 3 * 40 + 2 * 5


def test_who_knows_a_document_does_not_list_its_whole_past(
    store: ObjectStore, bucket: FaultyBucket, time_machine: MovedClock
) -> None:
    time_machine.stop()
    write(store, 5)
    bucket.listed.clear()
    assert store.cas("k", 6, b"") == 7
    assert len(bucket.listed) == 1


# what earlier releases wrote: no ground, no trails, and tombstones that stayed


def old_version(root: Path, key: str, number: int, text: str | None) -> None:
    target = root / folder_of(key) / version_name(number)
    target.parent.mkdir(parents=True, exist_ok=True)
    body = {"id": f"{key}-{number}", "after": f"{key}-{number - 1}" if number > 1 else None}
    target.write_text(json.dumps(body | ({} if text is None else {"text": text})))


def test_documents_of_earlier_releases_are_read_and_written_on(root: Path, store: ObjectStore) -> None:
    old_version(root, "new", 1, "first")
    for number in range(9, 18):
        old_version(root, "k", number, str(number))
    assert {d.key: (d.value, d.version) for d in store.list("")} == {"new": (b"first", 1), "k": (b"17", 17)}
    assert store.cas("new", 0, b"") is None
    assert store.cas("new", 1, b"second") == 2
    assert store.cas("k", 17, b"18") == 18
    last = delete(store)
    assert store.list("")[0].value == b"second" and len(store.list("")) == 1
    version = store.cas("k", 0, b"again")
    assert version is not None and version > last


def test_documents_that_earlier_releases_deleted_stay_deleted_and_are_removed(
    root: Path, store: ObjectStore, time_machine: MovedClock
) -> None:
    for i in range(30):
        old_version(root, f"e/{i:02}", 1, "decided")
        old_version(root, f"e/{i:02}", 2, None)
    old_version(root, "e/99", 1, "decided")
    for _ in range(3):
        assert [d.key for d in store.list("e/")] == ["e/99"]
        time_machine.pass_time(31)
    assert len(files(root, "d")) == 3
    version = store.cas("e/07", 0, b"again")
    assert version is not None and version > 2


def test_a_document_is_created_over_what_an_earlier_release_deleted(root: Path, store: ObjectStore) -> None:
    old_version(root, "k", 1, "first")
    old_version(root, "k", 2, None)
    version = store.cas("k", 0, b"again")
    assert version is not None and version > 2
    assert store.cas("k", 1, b"stale") is None
    assert value(store) == b"again"


def _id(root: Path, number: int) -> str:
    found: dict[str, str] = json.loads((root / folder_of("k") / version_name(number)).read_bytes())
    return found["id"]

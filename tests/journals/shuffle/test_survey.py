"""Many journals of an object store, found by one listing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from penstock.journals import Journals
from penstock.journals.reader import listing
from penstock.journals.shuffle.queues.run_files import RunWriter
from penstock.journals.shuffle.slices import slices
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.journals.shuffle.slices.readers import Readers
from penstock.journals.shuffle.slices.slices import Slice, SliceLimits
from penstock.sources import JournalSource
from penstock.sources.base import PartName
from penstock.storage import Storage, filesystem_of
from penstock.types.tables import Table
from servers.seaweed import Seaweed
from tests.journals.shuffle.desk import Items
from tests.journals.support import lines, put


class Numbers(Table):
    n: int


DATA = lines(0, 100)
HALF = DATA.index(b"\n", len(DATA) // 2) + 1


class Bucket:
    """Journals in an object store, which counts how often it is listed."""

    def __init__(self, s3: Seaweed, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        for name, value in s3.environment().items():
            patch.setenv(name, value)
        endpoint = urlsplit(s3.endpoint).netloc
        options = f"region=us-east-1&scheme=http&endpoint_override={endpoint}"
        self.url = f"s3://{s3.bucket}/{folder.name}?{options}"
        self.listed: list[str] = []
        objects = listing._objects

        def count(storage: Storage, folder: str, *, deep: bool) -> Iterator[listing.File]:
            self.listed.append(folder)
            return objects(storage, folder, deep=deep)

        patch.setattr(listing, "_objects", count)

    def put(self, journal: str, begin: int, data: bytes) -> None:
        path = put(self._folder / journal, begin, data)
        filesystem, base = filesystem_of(self.url)
        with filesystem.open_output_stream(f"{base}/{path.relative_to(self._folder)}") as stream:
            stream.write(path.read_bytes())

    def delete(self, journal: str) -> None:
        filesystem, base = filesystem_of(self.url)
        filesystem.delete_dir(f"{base}/{journal}")


@pytest.fixture
def bucket(s3: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(s3, tmp_path, monkeypatch)


def ends(source: JournalSource, known: dict[str, int]) -> dict[str, int]:
    """Where journals stand after they were read on."""
    found = {}
    with Readers({"s": source}) as readers:
        readers.expect({PartName("s", journal): offset for journal, offset in known.items()})
        for journal, offset in known.items():
            chunk, _ = readers.next(PartName("s", journal), offset, 1 << 20)
            found[journal] = offset if chunk is None else chunk.end
    return found


def test_one_listing_finds_all(bucket: Bucket) -> None:
    names = [f"many/{number:02}" for number in range(20)]
    for name in names:
        bucket.put(name, 0, DATA[:HALF])
    bucket.put("other", 0, DATA)
    source = JournalSource(bucket.url, Items, prefix="many/")
    known = dict.fromkeys(source.list_parts(), 0)
    assert list(known) == names
    bucket.listed.clear()
    known = ends(source, known)
    assert set(known.values()) == {HALF}
    assert bucket.listed == ["many"]
    bucket.put(names[7], HALF, DATA[HALF:])
    assert ends(source, known) == known | {names[7]: len(DATA)}
    assert bucket.listed == ["many"] * 2


def test_what_changes_after_the_listing_is_listed_anew(bucket: Bucket) -> None:
    names = [f"many/{number}" for number in range(6)]
    for name in names:
        bucket.put(name, 0, DATA[:HALF])
    source = JournalSource(bucket.url, Items, prefix="many/")
    with Readers({"s": source}) as readers:
        readers.expect({PartName("s", name): 0 for name in names})
        assert readers.next(PartName("s", names[0]), 0, 1 << 20)[0] is not None
        # Two fragments become one.
        bucket.delete(names[1])
        bucket.put(names[1], 0, DATA)
        chunk, _ = readers.next(PartName("s", names[1]), 0, 1 << 20)
    assert chunk is not None and chunk.data == DATA


def test_a_few_journals_are_listed_by_themselves(bucket: Bucket) -> None:
    for name in ("a", "b"):
        bucket.put(name, 0, DATA)
    source = JournalSource(bucket.url, Items)
    assert ends(source, {"a": 0, "b": 0}) == {"a": len(DATA), "b": len(DATA)}
    assert set(bucket.listed) == {"a", "b"}


def test_a_listing_that_takes_long_leaves_time_to_read(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"many/{number}" for number in range(8)]
    for name in names:
        bucket.put(name, 0, DATA[:HALF])
    source = JournalSource(bucket.url, Numbers, prefix="many/")
    reads = {PartName("s", name): JournalPosition(HALF) for name in names[:7]} | {
        PartName("s", names[7]): JournalPosition()
    }
    objects, passed = listing.objects, 0.0

    def slowly(storage: Storage, prefix: str) -> Iterator[listing.File]:
        nonlocal passed
        passed += 120
        return objects(storage, prefix)

    monkeypatch.setattr(listing, "objects", slowly)
    monkeypatch.setattr(slices, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed))
    with RunWriter(Storage(tmp_path / "work"), "runs/1", 1, None) as writer:
        slice_ = Slice({"s": source}, writer, SliceLimits(1 << 20, 1 << 20, 60), 1 << 63)
        slice_.read(reads)
    assert slice_.bytes == HALF and not slice_.unasked


def test_only_what_is_read_is_kept(bucket: Bucket) -> None:
    bucket.put("a", 0, DATA[:HALF])
    bucket.put("a", HALF, DATA[HALF:])
    bucket.put("b", 0, DATA)
    journals = Journals(bucket.url)
    survey = journals.survey({"a": HALF + 1})
    assert survey is not None and survey.objects == 3
    assert [fragment.begin for fragment in survey.fragments("a")] == [HALF]
    beyond = journals.survey({"a": len(DATA) + 100})
    assert beyond is not None
    assert [fragment.end for fragment in beyond.fragments("a")] == [len(DATA)], (
        "it lost its end, but is there"
    )

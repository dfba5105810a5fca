"""What the next owner of an output takes over of Spark's checkpoint."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from penstock.errors import StreamMismatch
from penstock.storage import Storage
from penstock.streams.outputs.spark_checkpoints import SparkCheckpoint, folder_of

OUT = "streams/s-1/outputs/out"
LINE = b'v1\n{"nextBatchWatermarkMs":0}'


class Owner:
    """Writes what Spark writes, for the owner with a token."""

    def __init__(self, storage: Storage, token: int) -> None:
        self.storage, self.token = storage, token

    def put(self, path: str, data: bytes) -> None:
        self.storage.write(f"{folder_of(OUT, self.token)}/{path}", data)

    def plan(self, batch: int, what: bytes = b"") -> None:
        self.put(f"offsets/{batch}", what or b'v1\n{"batchWatermarkMs":0}\n{"epoch":%d}\n-' % batch)

    def state(self, batch: int) -> None:
        self.put(f"state/0/0/{batch + 1}.changelog", b"of %d by %d" % (batch, self.token))

    def batch(self, batch: int, *, state: bool = True) -> None:
        self.plan(batch)
        if state:
            self.state(batch)
        self.put(f"commits/{batch}", LINE)

    def snapshot(self, version: int, size: int = 4) -> None:
        told = {"sstFiles": [{"localFileName": "1.sst", "dfsSstFileName": f"{version}.sst", "sizeBytes": 4}]}
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("metadata", f"v1\n{json.dumps(told)}")
        self.put(f"state/0/0/SSTs/{version}.sst", b"x" * size)
        self.put(f"state/0/0/{version}.zip", packed.getvalue())

    def files(self) -> dict[str, bytes]:
        folder = folder_of(OUT, self.token)
        found = (path for path, _ in self.storage.list(folder))
        return {path.removeprefix(f"{folder}/"): self.storage.read(path) for path in found}


@pytest.fixture(params=["directory", "remote"])
def storage(tmp_path: Path, request: pytest.FixtureRequest) -> Storage:
    return Storage(tmp_path / "files" if request.param == "directory" else f"mock:///{tmp_path.name}/files")


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "files")


def taken(storage: Storage, before: int = 1, safe: int | None = None) -> dict[str, bytes]:
    SparkCheckpoint(storage, OUT, 2).take_over(before, safe)
    return Owner(storage, 2).files()


def test_whole_batches_and_the_next_plan_are_taken(storage: Storage) -> None:
    owner = Owner(storage, 1)
    owner.put("metadata", b'{"id":"7"}')
    for batch in range(3):
        owner.batch(batch)
    owner.plan(3)
    before = owner.files()
    # Of the batch that is not done, the state is not: another attempt may have other rows.
    owner.state(3)
    assert taken(storage) == before


def test_a_late_owner_changes_nothing(storage: Storage) -> None:
    late = Owner(storage, 1)
    late.batch(0)
    late.plan(1)
    found = taken(storage)
    late.plan(1, b'v1\n{"batchWatermarkMs":0}\n{"epoch":99}')
    late.put("state/0/0/1.changelog", b"of another batch")
    assert Owner(storage, 2).files() == found
    SparkCheckpoint(storage, OUT, 2).remove_others()
    assert late.files() == {}
    late.batch(1)
    assert Owner(storage, 2).files() == found
    # What it leaves behind goes when the output has its next owner.
    SparkCheckpoint(storage, OUT, 3).remove_others()
    assert storage.list() == []


def test_what_an_earlier_attempt_copied_is_begun_anew(storage: Storage) -> None:
    Owner(storage, 1).batch(0)
    Owner(storage, 2).batch(7)
    assert "offsets/7" not in taken(storage)


def test_a_batch_with_state_that_was_not_synced_is_repeated(local: Storage) -> None:
    owner = Owner(local, 1)
    for batch in range(3):
        owner.batch(batch)
    found = taken(local, safe=1)
    assert {"commits/1", "offsets/2", "state/0/0/2.changelog"} <= found.keys()
    assert not {"commits/2", "state/0/0/3.changelog"} & found.keys()


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("damaged", ["commits/1", "offsets/1"])
def test_nobody_goes_back_behind_what_was_synced(storage: Storage, damaged: str, state: bool) -> None:
    owner, began = Owner(storage, 1), Owner(storage, 2)
    for batch in range(2):
        owner.batch(batch, state=state)
    # The sink may have this one: planned anew, it would have other rows.
    owner.plan(2)
    assert {"commits/1", "offsets/2"} <= taken(storage, safe=1).keys()
    owner.put(damaged, b"")
    before = owner.files(), began.files()
    with pytest.raises(StreamMismatch, match="batch 1 was complete in it, and now batch 0 is the last one"):
        taken(storage, safe=1)
    assert (owner.files(), began.files()) == before


def test_a_batch_without_state_is_not_repeated(local: Storage) -> None:
    owner = Owner(local, 1)
    for batch in range(3):
        owner.batch(batch, state=False)
    assert "commits/2" in taken(local, safe=1)


def test_a_bucket_has_what_it_shows(tmp_path: Path) -> None:
    storage = Storage(f"mock:///{tmp_path.name}/files")
    owner = Owner(storage, 1)
    for batch in range(3):
        owner.batch(batch)
    assert "commits/2" in taken(storage, safe=1)


@pytest.mark.parametrize("damaged", [b"", b"v1", b"v1\n", b'v1\n{"batchWaterm', b"\0\0\0\0", b"v1\n\xff"])
def test_a_plan_that_is_not_whole_is_made_again(local: Storage, damaged: bytes) -> None:
    owner = Owner(local, 1)
    owner.batch(0)
    owner.put("offsets/1", damaged)
    assert {"offsets/0", "commits/0"} <= taken(local).keys()
    assert "offsets/1" not in Owner(local, 2).files()
    owner.put("commits/1", LINE)
    assert "commits/1" not in taken(local)


def test_nothing_whole_is_nothing(local: Storage) -> None:
    owner = Owner(local, 1)
    owner.put("metadata", b"")
    owner.put("sources/0/0", b"")
    owner.plan(0, b"v1")
    assert taken(local) == {}
    assert taken(local, before=0) == {}


def test_a_snapshot_whose_files_are_not_whole_is_left_out(local: Storage) -> None:
    owner = Owner(local, 1)
    for batch in range(8):
        owner.batch(batch)
    owner.snapshot(3)
    owner.snapshot(5, size=0)
    owner.put("state/0/0/6.zip", b"")
    found = taken(local)
    assert [path for path in found if path.endswith(".zip")] == ["state/0/0/3.zip"]
    assert {f"state/0/0/{version}.changelog" for version in range(1, 9)} <= found.keys()


def test_hidden_files_stay_behind(local: Storage) -> None:
    owner = Owner(local, 1)
    owner.batch(0)
    owner.put("offsets/.0.crc", b"1")
    owner.put("state/0/0/.2.changelog.abc.tmp", b"1")
    assert not [path for path in taken(local) if "/." in path]


def test_every_new_file_is_synced_once(local: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        "penstock.streams.outputs.spark_checkpoints._sync", lambda path: synced.append(path.name)
    )
    owner, checkpoint = Owner(local, 2), SparkCheckpoint(local, OUT, 2)
    owner.batch(0)
    checkpoint.sync()
    assert sorted(synced) == ["0", "0", "1.changelog"]
    owner.put("state/0/0/1.changelog", b"replaced")
    owner.plan(1)
    checkpoint.sync()
    assert sorted(synced[3:]) == ["1", "1.changelog"]
    checkpoint.sync()
    assert len(synced) == 5

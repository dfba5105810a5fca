"""Files that appear when they are complete, and are known by their checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import pickle
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import CorruptFile, StorageFull, StorageUnusable, UsageError
from penstock.storage import FileRecord, Storage


@pytest.fixture(params=["directory", "remote"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A directory, and what pyarrow reaches by URL: its file system in memory stands for all of those."""
    if request.param == "directory":
        return Storage(tmp_path / "files")
    return Storage(f"mock:///{tmp_path.name}/files")


def put(storage: Storage, path: str, data: bytes = b"data", rows: int = 1) -> FileRecord:
    with storage.create(path) as sink:
        sink.write(data)
    return sink.record(path, rows)


def test_what_is_written_is_read(storage: Storage) -> None:
    record = put(storage, "a/b/c.bin", b"hello" * 1000, rows=7)
    assert record == FileRecord("a/b/c.bin", 7, 5000, hashlib.sha256(b"hello" * 1000).hexdigest())
    assert FileRecord.from_json(record.to_json()) == record
    assert storage.read("a/b/c.bin") == b"hello" * 1000
    with storage.open("a/b/c.bin") as file:
        file.seek(4990)
        assert file.read(5) == b"hello"
    assert storage.seal("a/b/c.bin") == (5000, record.sha256)
    storage.check(record)


def test_where_others_find_a_file(tmp_path: Path) -> None:
    assert Storage(tmp_path / "a?b").location("x/y") == f"{tmp_path}/a?b/x/y"
    assert Storage("s3://bucket/deep/").location("x/y") == "s3://bucket/deep/x/y"
    query = "s3://bucket/deep?region=eu&endpoint_override=host:9000"
    assert Storage(query).location("x") == "s3://bucket/deep/x?region=eu&endpoint_override=host:9000"
    assert Storage(query).location("") == query


def test_a_file_is_replaced_as_a_whole(storage: Storage) -> None:
    storage.write("x", b"long text")
    storage.write("x", b"new")
    assert storage.read("x") == b"new"
    assert storage.list() == [("x", 3)]


def test_nothing_is_there_before_the_end_nor_after_an_error(storage: Storage) -> None:
    def fail() -> None:
        with storage.create("a/b") as sink:
            sink.write(b"half")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert storage.list() == []
    with pytest.raises(FileNotFoundError):
        storage.read("a/b")
    with pytest.raises(FileNotFoundError):
        storage.open("a/b")


@pytest.mark.parametrize("size", [10, 5 << 20], ids=["small", "large"])
def test_what_stood_there_before_outlives_an_error(storage: Storage, size: int) -> None:
    storage.write("a/file", b"before")
    writing = storage.create("a/file")
    sink = writing.__enter__()
    for _ in range(5):
        sink.write(b"x" * (size // 5))
    assert not writing.__exit__(RuntimeError, RuntimeError("the writer fails"), None)
    assert storage.list() == [("a/file", 6)]
    assert storage.read("a/file") == b"before"


def test_a_large_file_is_replaced_as_a_whole(storage: Storage) -> None:
    for letter in (b"a", b"b"):
        with storage.create("a/file") as sink:
            for _ in range(5):
                sink.write(letter * (1 << 20))
    assert storage.list() == [("a/file", 5 << 20)]
    assert storage.read("a/file") == b"b" * (5 << 20)


def test_the_name_of_a_copy_outlives_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who copies removes the first name after a commit: then the second one must be on disk."""
    storage = Storage(tmp_path)
    storage.write("a/file", b"rows")
    synced: list[Path] = []
    monkeypatch.setattr("penstock.storage.sync_folder", lambda folder, missing_ok: synced.append(folder))
    storage.copy("a/file", "b/file")
    assert synced[-1] == tmp_path / "b"


def test_a_copy_stays_when_the_file_is_replaced(storage: Storage) -> None:
    storage.write("a/file", b"one")
    storage.copy("a/file", "b/c/file")
    storage.write("a/file", b"two")
    assert (storage.read("b/c/file"), storage.read("a/file")) == (b"one", b"two")
    storage.delete("a")
    assert storage.read("b/c/file") == b"one"
    with pytest.raises(FileNotFoundError):
        storage.copy("a/file", "b/c/other")


def test_folders_are_named(storage: Storage) -> None:
    assert storage.folders("a") == ()
    for path in ("a/x/1", "a/y/2/3", "a/file", "b/z/1"):
        storage.write(path, b"1")
    assert storage.folders("a") == ("x", "y")


def test_a_local_file_shows_itself_under_its_name_only_at_the_end(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    with storage.create("a") as sink:
        sink.write(b"half")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"half"


def test_an_abandoned_generator_leaves_nothing(tmp_path: Path) -> None:
    storage = Storage(tmp_path)

    def writing() -> Generator[int]:
        with storage.create("x") as sink:
            for _ in range(10):
                yield sink.write(b"piece")

    task = writing()
    next(task)
    assert list(tmp_path.iterdir())
    task.close()
    assert list(tmp_path.iterdir()) == []


def test_list_and_delete(storage: Storage) -> None:
    for path in ("b/2", "a/1", "a/deep/er/3", "top"):
        put(storage, path, path.encode())
    assert storage.list() == [("a/1", 3), ("a/deep/er/3", 11), ("b/2", 3), ("top", 3)]
    assert storage.list("a") == [("a/1", 3), ("a/deep/er/3", 11)]
    assert storage.list("nothing/here") == []
    storage.delete("a/deep")
    storage.delete("top")
    storage.delete("nothing/here")
    storage.delete("nothing")
    assert storage.list() == [("a/1", 3), ("b/2", 3)]


def test_listing_while_others_rename_and_remove(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            storage.write("d/x", b"1")
            storage.delete("d/x")

    def sweep() -> None:
        while not stop.is_set():
            storage.remove_empty("d")

    threads = [threading.Thread(target=work) for work in (churn, churn, sweep)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            assert all(size <= 4 for _, size in storage.list())
            put(storage, "d/mine")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert storage.read("d/mine") == b"data"


def test_empty_folders_are_removed(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    put(storage, "a/b/c/x")
    put(storage, "a/y")
    storage.delete("a/b/c/x")
    storage.remove_empty("a")
    assert [p.name for p in tmp_path.rglob("*")] == ["a", "y"]
    storage.remove_empty("missing")


def test_probing_leaves_nothing(storage: Storage) -> None:
    storage.probe()
    assert storage.list() == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EIO])
def test_a_place_that_takes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(self: Path, *arguments: object, **more: object) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StorageUnusable, match=os.strerror(number)):
        Storage(tmp_path / "out").probe()


def test_an_object_store_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise OSError("When initiating multiple part upload: AWS Error NO_SUCH_BUCKET")

    monkeypatch.setattr(
        "penstock.storage.filesystem_of", lambda root: (SimpleNamespace(open_output_stream=refuse), "b")
    )
    with pytest.raises(StorageUnusable, match="NO_SUCH_BUCKET"):
        Storage("s3://nowhere/at-all").probe()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_check_finds_every_kind_of_damage(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    flipped, shorter, longer, missing = (put(storage, f"d/{n}", os.urandom(5000)) for n in "abcd")
    flip(tmp_path / "d/a")
    os.truncate(tmp_path / "d/b", 4999)
    with (tmp_path / "d/c").open("ab") as file:
        file.write(b"x")
    (tmp_path / "d/d").unlink()
    for record, said in (
        (flipped, "d/a does not match its checksum"),
        (shorter, "d/b has 4999 bytes, not 5000"),
        (longer, "d/c has 5001 bytes, not 5000"),
        (missing, "d/d is missing"),
    ):
        with pytest.raises(CorruptFile, match=said):
            storage.check(record)


def test_check_of_a_missing_remote_file() -> None:
    with pytest.raises(CorruptFile, match="gone is missing"):
        Storage("mock:///x").check(FileRecord("gone", 1, 1, "00"))


def test_pyarrow_writes_through_a_sink(storage: Storage) -> None:
    table = pa.table({"a": list(range(100_000))})
    with (
        storage.create("t.arrow") as sink,
        pa.ipc.new_file(pa.PythonFile(sink, mode="w"), table.schema) as writer,
    ):
        writer.write_table(table)
    with storage.open("t.arrow") as file:
        assert pa.ipc.open_file(file).read_all().equals(table)
    storage.check(sink.record("t.arrow", table.num_rows))


@contextmanager
def tiny_disk(folder: Path) -> Iterator[Path]:
    """A file system with room for one megabyte."""
    place = folder / "tiny"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk(tmp_path: Path) -> None:
    with tiny_disk(tmp_path) as place:
        assert_nothing_is_lost(Storage(place))


def assert_nothing_is_lost(storage: Storage) -> None:
    kept = put(storage, "kept", b"x" * 300_000)
    batch = pa.record_batch({"a": list(range(400_000))})

    def write_arrow() -> None:
        with (
            storage.create("big") as sink,
            pa.ipc.new_file(pa.PythonFile(sink, mode="w"), batch.schema) as writer,
        ):
            writer.write_batch(batch)

    with pytest.raises(StorageFull, match=r"no space left at (.|\n)*left: complete files") as caught:
        write_arrow()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(StorageFull):
        storage.write("small/but/too/much", b"x" * 800_000)
    assert storage.list() == [("kept", 300_000)]
    storage.check(kept)
    storage.probe()
    put(storage, "filler", b"x" * 680_000)
    with pytest.raises(StorageFull):
        storage.probe()
    assert [path for path, _ in storage.list()] == ["filler", "kept"]


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageUnusable, match=r"nothing can be written to .*File exists") as caught:
        put(Storage(tmp_path), "file/below")
    assert isinstance(caught.value, OSError)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), StorageUnusable)
    with pytest.raises(OSError, match="the program's own"), Storage(tmp_path).create("x"):
        raise OSError(errno.EACCES, "the program's own")
    with pytest.raises(UsageError, match="nope://x is not a place for files"):
        Storage("nope://x").read("a")


def test_spellings_of_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = Storage(tmp_path / "a b")
    for spelling in (
        "a b",
        f"{tmp_path}/a b/",
        f"file://{tmp_path}/a%20b",
        f"file://localhost{tmp_path}/a b",
    ):
        assert Storage(spelling) == here
    assert hash(Storage("a b")) == hash(here)
    assert Storage("x") != here
    assert here.location("f") == f"{tmp_path}/a b/f"
    assert here.location("") == f"{tmp_path}/a b"
    assert Storage("s3://bucket/prefix/").location("f") == "s3://bucket/prefix/f"
    copy = pickle.loads(pickle.dumps(here))
    assert copy == here and copy.local == here.local


OUTSIDE = ["../secret", "a/../../secret", "/etc/passwd", "a/..", "a\0b"]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("scheme", ["", "mock"])
def test_no_path_leads_out_of_a_storage(tmp_path: Path, path: str, scheme: str) -> None:
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "storage" / "a").mkdir(parents=True)
    storage = Storage(tmp_path / "storage" if not scheme else f"mock://{tmp_path}/storage")
    for act in (
        storage.open,
        storage.read,
        storage.delete,
        storage.seal,
        storage.list,
        storage.folders,
        lambda where: storage.write(where, b"x"),
        lambda where: storage.copy(where, "b"),
        lambda where: storage.copy("b", where),
        lambda where: storage.check(FileRecord(where, 1, 4, "")),
    ):
        with pytest.raises(CorruptFile, match="leads out of the storage"):
            act(path)
    assert (tmp_path / "secret").read_text() == "mine"


@pytest.mark.parametrize(
    "value",
    [
        *({"path": path, "rows": 1, "bytes": 1, "sha256": ""} for path in OUTSIDE),
        {"path": 7, "rows": 1, "bytes": 1, "sha256": ""},
        {"path": "a", "rows": -1, "bytes": 1, "sha256": ""},
        {"path": "a", "rows": float("nan"), "bytes": 1, "sha256": ""},
        {"path": "a", "rows": True, "bytes": 1, "sha256": ""},
        {"path": "a", "rows": 1, "bytes": "1", "sha256": ""},
        {"path": "a", "rows": 1, "bytes": 1, "sha256": None},
        {"path": "a"},
        ["a", 1, 1, ""],
        "a",
    ],
)
def test_what_describes_no_file_is_refused(value: Any) -> None:
    with pytest.raises(CorruptFile):
        FileRecord.from_json(value)

"""Directories of files: every format read in pieces, and everything that may be wrong with a file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.batch.inputs.formats.base import FilePiece
from penstock.batch.inputs.formats.parquet import Parquet
from penstock.errors import BadInput, InputChanged, TransientError, TypeMismatch, UsageError
from penstock.sources import DirectorySource
from penstock.sources.conformance import NAMES, check
from penstock.storage import filesystem_of
from penstock.types.tables import Table
from servers.seaweed import Seaweed
from tests.sources.conftest import Orders, json_lines, orders, read, save, stored

SUFFIXES = ["parquet", "csv", "jsonl", "arrow"]


class Ids(Table):
    id: int


@pytest.fixture
def mixed(folder: Path) -> Path:
    for suffix in SUFFIXES:
        save(orders(80), folder / "deep" / f"orders.{suffix}")
    return folder


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("grows", [True, False])
def test_conformance(mixed: Path, name: str, grows: bool) -> None:
    check(DirectorySource(mixed, Orders, grows=grows), only=name)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("limit", [1, 24, 1000])
def test_all_rows_come_once_and_then_the_part_finishes(folder: Path, suffix: str, limit: int) -> None:
    save(orders(103), folder / f"a.{suffix}")
    source = DirectorySource(folder, Orders)
    assert source.list_parts() == [f"a.{suffix}"]
    part = source.build_part(f"a.{suffix}", None)
    assert read(part, limit) == orders(103).to_pylist()
    assert part.is_finished()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_reading_goes_on_at_any_row_in_another_process(folder: Path, suffix: str) -> None:
    save(orders(60), folder / f"a.{suffix}", chunk=25)
    source = DirectorySource(folder, Orders)
    for before in (0, 1, 24, 25, 26, 59, 60):
        one = source.build_part(f"a.{suffix}", None)
        rows = read(one, 10, most=before)
        other = source.build_part(f"a.{suffix}", stored(one.snapshot()))
        assert rows + read(other, 7) == orders(60).to_pylist()
        assert other.is_finished()


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_large_text_is_read_in_small_pieces_from_where_it_was(
    folder: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = orders(30_000)
    path = save(expected, folder / f"a.{suffix}")
    source = DirectorySource(folder, Orders)
    part = source.build_part(path.name, None)
    rows = read(part, 10_000, most=20_000)
    state = stored(part.snapshot())
    assert 0 < state["offset"] < path.stat().st_size
    read_from = _offsets(monkeypatch)
    other = source.build_part(path.name, state)
    assert rows + read(other, 10_000) == expected.to_pylist()
    header = [0] if suffix == "csv" else []
    assert read_from[: len(header) + 1] == [*header, state["offset"]]
    assert min(read_from[len(header) :]) == state["offset"]


def test_parquet_is_entered_at_the_row_group_of_the_next_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(orders(100), folder / "a.parquet", chunk=25)
    plain, entered = Parquet.read, []

    def noting(self: Parquet, piece: FilePiece, *more: Any) -> Any:
        entered.append(piece.marks)
        return plain(self, piece, *more)

    monkeypatch.setattr(Parquet, "read", noting)
    source = DirectorySource(folder, Orders)
    for before in (24, 25, 26, 99):
        part = source.build_part("a.parquet", None)
        read(part, 100, most=before)
        read(source.build_part("a.parquet", stored(part.snapshot())))
    assert entered[1::2] == [(0, 4), (1, 4), (1, 4), (3, 4)]


def _offsets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    from penstock.sources.files import directory

    seen: list[int] = []
    plain = directory._ReadAt.__call__

    def noting(self: Any, size: int, offset: int) -> bytes:
        seen.append(offset)
        return plain(self, size, offset)

    monkeypatch.setattr(directory._ReadAt, "__call__", noting)
    return seen


def test_text_of_many_kinds_of_line_ends(folder: Path) -> None:
    (folder / "a.csv").write_bytes(b"\xef\xbb\xbfid\r\n1\r\n\r\n2\n\n3")
    (folder / "b.jsonl").write_bytes(b'\xef\xbb\xbf{"id":1}\r\n  \n{"id":2}\n\n{"id":3}\n\n')
    source = DirectorySource(folder, Ids)
    for name in source.list_parts():
        for limit in (1, 2, 9):
            part = source.build_part(name, None)
            assert read(part, limit) == [{"id": 1}, {"id": 2}, {"id": 3}]
            assert part.is_finished()


def test_a_record_that_is_longer_than_a_piece(folder: Path) -> None:
    long = "x" * 300_000
    (folder / "a.csv").write_text(f'id,note,price,at\n1,"{long}\n{long}",1,2026-01-01\n2,b,2,2026-01-01\n')
    rows = read(DirectorySource(folder, Orders).build_part("a.csv", None))
    assert [row["note"] for row in rows] == [f"{long}\n{long}", "b"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_without_rows_finishes(folder: Path, suffix: str) -> None:
    save(orders(0), folder / f"a.{suffix}")
    part = DirectorySource(folder, Orders).build_part(f"a.{suffix}", None)
    assert part.poll(5) is None and part.is_finished()
    again = DirectorySource(folder, Orders).build_part(f"a.{suffix}", stored(part.snapshot()))
    assert again.poll(5) is None and again.is_finished()


def test_a_part_that_was_never_polled_can_be_moved(folder: Path) -> None:
    save(orders(5), folder / "a.csv")
    source = DirectorySource(folder, Orders)
    part = source.build_part("a.csv", None)
    assert not part.is_finished()
    state = stored(part.collect())
    part.close()
    assert len(read(source.build_part("a.csv", state))) == 5


def test_options_of_csv_and_columns_that_are_not_wanted(folder: Path) -> None:
    (folder / "a.txt").write_text("1;'a;b';x\n2;-;y\n")

    class Pairs(Table):
        id: int
        name: str | None
        rest: str

    source = DirectorySource(
        folder, Pairs, format="csv", header=False, delimiter=";", quote="'", null_values=["-"]
    )
    assert read(source.build_part("a.txt", None)) == [
        {"id": 1, "name": "a;b", "rest": "x"},
        {"id": 2, "name": None, "rest": "y"},
    ]
    save(orders(3), folder / "b.csv")
    assert read(DirectorySource(folder, Ids).build_part("b.csv", None)) == [{"id": 0}, {"id": 1}, {"id": 2}]


# which files


def test_new_files_are_picked_up_and_unfinished_ones_are_not(folder: Path) -> None:
    source = DirectorySource(folder, Orders)
    assert source.list_parts() == []
    save(orders(1), folder / "b.csv")
    assert source.list_parts() == ["b.csv"]
    save(orders(1), folder / "2026" / "a.parquet")
    for name in (".a.csv", "_a.csv", "a.csv.tmp", ".hidden/a.csv", "_temporary/0/a.csv", "x/_y/z/a.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("half")
    assert source.list_parts() == ["2026/a.parquet", "b.csv"]


def test_a_pattern_chooses_files_and_names_them_below_its_plain_part(folder: Path) -> None:
    for name in ("x/a.csv", "x/b.txt", "y/a.csv", "y/_a.csv", "_z/a.csv"):
        save(orders(2), folder / name)
    source = DirectorySource(f"{folder}/*/*.csv", Orders)
    assert source.list_parts() == ["x/a.csv", "y/a.csv"]
    assert len(read(source.build_part("y/a.csv", None))) == 2
    assert DirectorySource(f"{folder}/**/a.csv", Orders).list_parts() == ["x/a.csv", "y/a.csv"]


def test_names_are_the_same_from_anywhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(orders(2), folder / "x" / "a.csv")
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    sources = [
        DirectorySource(place, Orders) for place in ("data", "link", f"file://{folder}", "link/*", folder)
    ]
    monkeypatch.chdir("/")
    for source in sources:
        assert source.list_parts() == ["x/a.csv"]
        assert len(read(source.build_part("x/a.csv", None))) == 2


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    for place in (tmp_path / "gone", tmp_path / "gone" / "*.csv"):
        with pytest.raises(BadInput, match=r"there is no folder .*gone"):
            DirectorySource(place, Orders).list_parts()


def test_what_names_and_states_refer_to(folder: Path) -> None:
    csv = {"header": True, "delimiter": ";", "quote": '"', "null_values": "'', '-'"}
    source = DirectorySource(f"{folder}/*.csv", Orders, delimiter=";", null_values=["", "-"])
    assert source.describe() == {"files": f"{folder}/*.csv", "format": "by name", "csv": csv}
    parquet = DirectorySource("s3://key:secret@bucket/x", Orders, format="parquet", missing="skip")
    assert parquet.describe() == {"files": "s3://key:***@bucket/x", "format": "parquet"}


def test_a_stray_file_is_left_out_and_named_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(orders(2), folder / "a.csv")
    for name in ("README.txt", "LICENSE"):
        (folder / name).write_text("x")
    source = DirectorySource(folder, Orders)
    for _ in range(3):
        assert source.list_parts() == ["a.csv"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and "README.txt is left out" in told[1]
    # Where the format is given, names mean nothing.
    named = DirectorySource(folder, Orders, format="csv").list_parts()
    assert named == ["LICENSE", "README.txt", "a.csv"]
    # Compressed data is no stray file: to leave it out would be to lose it.
    (folder / "b.csv.gz").write_text("x")
    with pytest.raises(BadInput, match="compressed"):
        source.list_parts()


@pytest.mark.parametrize("name", ["notes", "a.xml", "a.csv.gz"])
def test_a_file_whose_format_is_unknown_is_named(folder: Path, name: str) -> None:
    (folder / name).write_text("x")
    with pytest.raises(BadInput, match=name):
        DirectorySource(folder, Orders).list_parts()


def test_compressed_text_is_refused_whatever_the_format_is_said_to_be(folder: Path) -> None:
    (folder / "a.csv.gz").write_text("x")
    with pytest.raises(BadInput, match="compressed"):
        DirectorySource(folder, Orders, format="csv").list_parts()


def test_a_name_that_is_no_text_is_refused(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.csv")).write_text("x")
    with pytest.raises(BadInput, match="must be printable text"):
        DirectorySource(folder, Orders).list_parts()


@pytest.mark.parametrize(
    "options",
    [
        {"format": "xml"},
        {"delimiter": ";;"},
        {"deliminator": ";"},
        {"format": "parquet", "header": False},
        {"missing": "ignore"},
    ],
)
def test_options_that_make_no_sense_are_refused(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        DirectorySource(folder, Orders, **options)


# files that change or are broken


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("built_anew", [False, True])
def test_a_file_that_changes_before_its_end_stops_the_stream(
    folder: Path, suffix: str, built_anew: bool
) -> None:
    path = save(orders(500), folder / f"a.{suffix}")
    source = DirectorySource(folder, Orders)
    for change in (
        lambda: save(orders(501), path),
        lambda: os.truncate(path, path.stat().st_size // 2),
        lambda: os.utime(path, ns=(0, 1)),
        path.unlink,
    ):
        save(orders(500), path)
        part = source.build_part(path.name, None)
        read(part, 10, most=20)
        part.suspend()
        change()
        if built_anew:
            part = source.build_part(path.name, stored(part.snapshot()))
        with pytest.raises(InputChanged, match=path.name) as caught:
            read(part, 10)
        assert caught.value.hint is not None
        assert "restore the file" in caught.value.hint and "missing='skip'" in caught.value.hint
        part.close()


def test_a_file_that_is_put_back_as_it_was_goes_on(folder: Path, tmp_path: Path) -> None:
    path = save(orders(50), folder / "a.csv")
    shutil.copy2(path, tmp_path / "kept")
    source = DirectorySource(folder, Orders)
    part = source.build_part("a.csv", None)
    rows = read(part, 10, most=20)
    path.unlink()
    with pytest.raises(InputChanged, match="missing"):
        part.poll(1)
    shutil.copy2(tmp_path / "kept", path)
    assert rows + read(source.build_part("a.csv", stored(part.snapshot()))) == orders(50).to_pylist()


def test_a_file_that_is_gone_before_it_was_read_counts_as_finished(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = DirectorySource(folder, Orders)
    part = source.build_part("a.csv", None)
    assert part.poll(1) is None and part.is_finished()
    assert part.snapshot() is None and part.poll(1) is None
    assert "a.csv is gone and counts as finished: nothing was read of it" in caplog.text
    # Where the whole folder is away, as a disk that is not mounted, nothing is finished.
    other = source.build_part("b.csv", None)
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(BadInput, match="there is no folder"):
        other.poll(1)
    assert not other.is_finished()


def test_a_broken_file_is_removed_as_its_error_says(folder: Path) -> None:
    (folder / "a.parquet").write_bytes(b"no parquet at all")
    source = DirectorySource(folder, Orders)
    with pytest.raises(BadInput) as caught:
        source.build_part("a.parquet", None).poll(1)
    assert caught.value.hint is not None and "remove the file and bring a whole one" in caught.value.hint
    (folder / "a.parquet").unlink()
    save(orders(3), folder / "b.parquet")
    again = source.build_part("a.parquet", None)
    assert again.poll(1) is None and again.is_finished()
    assert len(read(source.build_part("b.parquet", None))) == 3


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("built_anew", [False, True])
def test_a_file_that_is_gone_half_way_is_given_up_if_that_was_asked_for(
    folder: Path, suffix: str, built_anew: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = save(orders(500), folder / f"a.{suffix}")
    source = DirectorySource(folder, Orders, missing="skip")
    part = source.build_part(path.name, None)
    read(part, 10, most=20)
    part.suspend()
    before = stored(part.snapshot())
    os.utime(path, ns=(0, 1))
    if built_anew:
        part = source.build_part(path.name, before)
    with pytest.raises(InputChanged, match="modified"):
        part.poll(10)
    path.unlink()
    if built_anew:
        part = source.build_part(path.name, before)
    assert part.poll(10) is None and part.is_finished()
    assert stored(part.snapshot()) == before
    assert f"a.{suffix} is gone and counts as finished: read up to row 20" in caplog.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", b"no parquet at all"),
        ("a.parquet", b"PAR1\0\0\0\0\0\0\0\0\xff\xff\xff\x7fPAR1"),
        ("a.arrow", b"ARROW1\0\0 and nothing"),
        ("a.arrow", b"something else"),
        ("a.csv", b"id,price,note,at\n1,2,3\n"),
        ("a.csv", b"id,price,note,at\nx,2,n,2026-01-01\n"),
        ("a.csv", b'id,price,note,at\n1,2,"n,2026-01-01\n'),
        ("a.csv", b"id,price\n1,2\n"),
        ("a.csv", b"id,price,note,at\r1,2,n,2026-01-01\r"),
        ("a.jsonl", b'{"id": 1,\n'),
        ("a.jsonl", b'{"id": "x", "price": 1, "at": "2026-01-01T00:00:00Z"}\n'),
        ("a.jsonl", b'{"id": 1, "price": 1}\n'),
        ("a.jsonl", b"[1]\n"),
    ],
)
def test_a_broken_file_is_named(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(BadInput, match=name):
        read(DirectorySource(folder, Orders).build_part(name, None))


def test_a_damaged_parquet_file_is_named(folder: Path) -> None:
    path = save(orders(2000), folder / "a.parquet", chunk=2000)
    data = bytearray(path.read_bytes())
    data[100:400] = bytes(300)
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"a\.parquet"):
        read(DirectorySource(folder, Orders).build_part("a.parquet", None))


def test_a_parquet_file_of_other_types_is_refused(folder: Path) -> None:
    pq.write_table(pa.table({"id": ["x"]}), folder / "a.parquet")
    with pytest.raises(TypeMismatch, match=r"a\.parquet.*id is string"):
        DirectorySource(folder, Ids).build_part("a.parquet", None).poll(1)


def test_a_null_that_the_table_does_not_allow_is_told_by_its_row(folder: Path) -> None:
    rows = ['{"id": 1}\n'] * 30 + ["{}\n"]
    (folder / "a.jsonl").write_text("".join(rows))
    part = DirectorySource(folder, Ids).build_part("a.jsonl", None)
    read(part, 10, most=20)
    with pytest.raises(BadInput, match=r"row 30 .counted from 0.: id is null"):
        read(part, 10)


# what it costs


def test_text_that_rests_holds_no_file_open_and_parquet_none_after_its_end(folder: Path) -> None:
    before = _open_files()
    source = DirectorySource(folder, Orders)
    parts = []
    for n in range(20):
        save(orders(50), folder / f"{n}.csv")
        parts.append(source.build_part(f"{n}.csv", None))
        read(parts[-1], 10, most=10)
    assert _open_files() == before
    save(orders(50), folder / "a.parquet")
    part = source.build_part("a.parquet", None)
    read(part, 10, most=10)
    part.close()
    assert _open_files() == before


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0


# object stores


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """An object store in memory, with a file of each format."""
    url = f"mock://{tmp_path.name.replace('_', '-')}/in"
    _upload(url, tmp_path)
    return url


def _upload(url: str, tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        data = save(orders(60), tmp_path / "made" / f"o.{suffix}").read_bytes()
        _put(f"{url.partition('?')[0]}/o.{suffix}?{url.partition('?')[2]}".rstrip("?"), data)


def _put(url: str, data: bytes) -> None:
    place = urlsplit(url)
    filesystem, base = filesystem_of(urlunsplit(place._replace(path="/")))
    path = f"{base}{place.path}".lstrip("/")
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(path) as sink:
        sink.write(data)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_object_store_is_read_like_a_folder(bucket: str, suffix: str) -> None:
    source = DirectorySource(bucket, Orders, grows=False)
    assert source.list_parts() == sorted(f"o.{each}" for each in SUFFIXES)
    part = source.build_part(f"o.{suffix}", None)
    rows = read(part, 10, most=30)
    other = source.build_part(f"o.{suffix}", stored(part.snapshot()))
    assert rows + read(other, 10) == orders(60).to_pylist()


def test_an_object_that_is_replaced_is_noticed(bucket: str) -> None:
    source = DirectorySource(bucket, Orders)
    part = source.build_part("o.jsonl", None)
    read(part, 10, most=10)
    _put(f"{bucket}/o.jsonl", json_lines(orders(61)).encode())
    with pytest.raises(InputChanged, match=r"o\.jsonl"):
        read(source.build_part("o.jsonl", stored(part.snapshot())), 10)


def test_a_pattern_of_objects_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="patterns work for local paths only"):
        DirectorySource("s3://bucket/*.csv", Orders)


def test_trouble_with_the_network_may_pass(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.sources.files import directory

    def fail(self: Any, size: int, offset: int) -> bytes:
        raise OSError("connection reset")

    monkeypatch.setattr(directory._ReadAt, "__call__", fail)
    with pytest.raises(TransientError, match=r"o\.jsonl cannot be read now: connection reset"):
        DirectorySource(bucket, Orders).build_part("o.jsonl", None).poll(1)


def test_a_real_object_store_conforms(s3: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    endpoint = urlsplit(s3.endpoint).netloc
    url = f"s3://{s3.bucket}/{tmp_path.name}?region=us-east-1&scheme=http&endpoint_override={endpoint}"
    _upload(url, tmp_path)
    source = DirectorySource(url, Orders, grows=False)
    assert source.list_parts() == sorted(f"o.{each}" for each in SUFFIXES)
    check(source, rows=30, timeout=30)

"""Reading fragments as they lie, damaged ones too."""

from __future__ import annotations

import gzip
import pickle
import random
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest

from penstock.errors import BadInput, CorruptFile, JournalGap, JournalTruncated, UsageError
from penstock.journals import Journals, JournalWriter
from penstock.journals.format import contents
from penstock.journals.reader.verify import verify, verify_all
from penstock.storage import filesystem_of
from servers.seaweed import Seaweed
from tests.journals.support import lines, packed, put, read_all

EXTENSIONS = [".raw", ".gz", "", ".zst"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "j"


@pytest.fixture
def journals(tmp_path: Path) -> Journals:
    return Journals(tmp_path)


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_fragments_of_each_kind(journals: Journals, folder: Path, extension: str) -> None:
    first, second = lines(0, 50), lines(50, 80)
    put(folder, 0, first, extension)
    put(folder, len(first), second, extension)
    assert read_all(journals, "j") == first + second
    assert read_all(journals, "j", limit=1) == first + second
    middle = len(lines(0, 33))
    assert read_all(journals, "j", middle) == (first + second)[middle:]
    assert read_all(journals, "j", middle) == (first + second)[middle:], "also when it is known to be right"
    assert journals.head("j") == len(first + second)


def test_members_and_frames_may_be_many(journals: Journals, folder: Path) -> None:
    parts = [lines(n, n + 10) for n in range(0, 50, 10)]
    put(folder, 0, b"".join(parts), ".gz", stored=b"".join(map(gzip.compress, parts)))
    put(folder / "x", 0, b"".join(parts), ".zst", stored=b"".join(packed(part, ".zst") for part in parts))
    assert read_all(journals, "j") == read_all(journals, "j/x") == b"".join(parts)


def test_chunks_are_whole_lines_with_their_offsets(journals: Journals, folder: Path) -> None:
    data = lines(0, 100)
    put(folder, 0, data, ".zst")
    reader = journals.reader("j")
    position = 0
    while chunk := reader.read(300):
        assert chunk.begin == position == chunk.end - len(chunk.data)
        assert chunk.data.endswith(b"\n") and len(chunk.data) <= 300
        position = chunk.end
    assert position == reader.offset == len(data)


def test_lines_go_on_in_the_next_fragment(journals: Journals, folder: Path) -> None:
    data = lines(0, 40)
    for begin in range(0, len(data), 37):
        put(folder, begin, data[begin : begin + 37], random.choice(EXTENSIONS))
    assert read_all(journals, "j", limit=100) == data
    assert verify(journals, "j").problems == ()


def test_a_line_without_its_end_is_not_there_yet(journals: Journals, folder: Path) -> None:
    data = lines(0, 3)
    put(folder, 0, data[:-5])
    reader = journals.reader("j")
    chunk = reader.read(10_000)
    assert chunk is not None and chunk.data == lines(0, 2)
    assert reader.read(10_000) is None
    assert [problem.kind for problem in verify(journals, "j").problems] == ["truncated"]
    put(folder, len(data) - 5, data[-5:], ".gz")
    chunk = reader.read(10_000)
    assert chunk is not None and (chunk.begin, chunk.data) == (len(lines(0, 2)), data[len(lines(0, 2)) :])


def test_a_long_line_is_read_whole(journals: Journals, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'{"x":"' + b"y" * 3_000_000 + b'"}\n' + lines(0, 1)
    put(folder, 0, data, ".zst")
    chunk = journals.reader("j").read(1000)
    assert chunk is not None and len(chunk.data) == 3_000_009
    monkeypatch.setattr("penstock.journals.reader.reading.LONGEST_LINE", 1 << 20)
    with pytest.raises(BadInput, match="the line at offset 0 is longer than 1 MiB"):
        journals.reader("j").read(1000)


def test_what_lies_before_a_gap_comes_first(journals: Journals, folder: Path) -> None:
    put(folder, 0, lines(0, 3))
    put(folder, 1000, lines(5, 9))
    reader = journals.reader("j")
    chunk = reader.read(10_000)
    assert chunk is not None and chunk.data == lines(0, 3)
    with pytest.raises(JournalGap, match=f"journal j: the bytes {chunk.end} to 1,000") as caught:
        reader.read(10_000)
    assert (caught.value.begin, caught.value.end) == (chunk.end, 1000)
    assert read_all(journals, "j", caught.value.end) == lines(5, 9)
    assert [(p.kind, p.offset) for p in verify(journals, "j").problems] == [("gap", chunk.end)]


def test_a_journal_that_ends_too_early(journals: Journals, folder: Path) -> None:
    put(folder, 0, lines(0, 3))
    with pytest.raises(JournalTruncated, match="but was to be read from 9,999 on"):
        journals.reader("j", 9999).read(10)
    with pytest.raises(UsageError):
        journals.reader("j", -1)


def test_journals_appear_and_vanish(journals: Journals, folder: Path) -> None:
    reader = journals.reader("j")
    assert reader.read(100) is None
    assert journals.head("j") is None and journals.list() == [] and journals.fragments("j") == ()
    path = put(folder, 0, lines(0, 3), ".gz")
    assert reader.read(10_000) is not None
    path.unlink()
    assert reader.read(10_000) is None
    folder.rmdir()
    assert reader.read(10_000) is None
    put(folder, reader.offset, b"")
    assert reader.read(10_000) is None
    assert journals.head("j") == reader.offset, "suspended: an empty fragment says where it goes on"
    put(folder, reader.offset, lines(3, 4))
    chunk = reader.read(10_000)
    assert chunk is not None and chunk.data == lines(3, 4)


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("damage", ["short", "long", "other", "garbage", "empty"])
def test_damage_is_told_before_the_first_byte(
    journals: Journals, folder: Path, extension: str, damage: str
) -> None:
    data = lines(0, 50)
    stored = {
        "short": packed(data[:-10], extension),
        "long": packed(data + b"x\n", extension),
        "other": packed(data.replace(b'"n":7', b'"n":8'), extension),
        "garbage": b"\x1f\x8bgarbage" * 9,
        "empty": b"",
    }[damage]
    path = put(folder, 0, data, extension, stored=stored)
    with pytest.raises(CorruptFile, match="is not what its name says") as caught:
        journals.reader("j").read(100)
    assert str(path) in str(caught.value) and caught.value.hint
    report = verify(journals, "j")
    assert not report.is_right
    assert report.problems[0].file == f"j/{path.name}"


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_fuzzed_fragments_are_told_or_harmless(tmp_path: Path, extension: str) -> None:
    data, luck = lines(0, 40), random.Random(7)
    whole = packed(data, extension)
    for number in range(60):
        bad = bytearray(whole)
        if number % 3:
            bad[luck.randrange(len(bad))] ^= 1 << luck.randrange(8)
        else:
            del bad[luck.randrange(len(bad)) :]
        journals, path = Journals(tmp_path / str(number)), tmp_path / str(number) / "j"
        put(path, 0, data, extension, stored=bytes(bad))
        report = verify(journals, "j")
        try:
            assert read_all(journals, "j") == data
        except CorruptFile:
            assert not report.is_right
        else:
            assert report.is_right


def test_a_file_that_changes_after_it_was_found_right(journals: Journals, folder: Path) -> None:
    data = lines(0, 50)
    path = put(folder, 0, data)
    assert read_all(journals, "j") == data
    path.write_bytes(data[:-1] + b"x")
    with pytest.raises(CorruptFile):
        read_all(journals, "j")


def test_an_unknown_compression_and_a_wrong_name(journals: Journals, folder: Path) -> None:
    path = put(folder, 0, lines(0, 5), ".sz", stored=b"x")
    with pytest.raises(BadInput, match="not known here"):
        read_all(journals, "j")
    assert [p.kind for p in verify(journals, "j").problems] == ["extension"]
    path.rename(folder / path.name.replace(".sz", ".raw.1"))
    with pytest.raises(BadInput, match="almost like a fragment"):
        read_all(journals, "j")
    assert [p.kind for p in verify(journals, "j").problems] == ["name"]
    assert journals.list() == ["j"]


@pytest.mark.parametrize("name", [f"00000000000000XX-{7:016x}-{'0' * 40}.raw", "notes.txt"])
def test_no_file_of_a_journal_is_passed_over(journals: Journals, folder: Path, name: str) -> None:
    put(folder, 0, lines(0, 5))
    (folder / name).write_bytes(b"{}\n")
    with pytest.raises(BadInput, match="fragment"):
        read_all(journals, "j")
    assert [(p.kind, p.file) for p in verify(journals, "j").problems] == [("name", f"j/{name}")]
    with JournalWriter(folder.parent) as writer, pytest.raises(BadInput, match="fragment"):
        writer.append("j", [{"n": 6}])


def test_a_journal_with_nothing_but_a_broken_name_is_found(journals: Journals, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"00000000000000XX-{7:016x}-{'0' * 40}.raw").write_bytes(b"{}\n")
    assert journals.list() == ["j"]
    with pytest.raises(BadInput, match="almost like a fragment"):
        read_all(journals, "j")


@pytest.mark.parametrize("name", [".", f"{0:016x}-{7:016x}-{'0' * 40}.raw", "tab\there"])
def test_fragments_in_a_folder_that_is_no_journal(journals: Journals, tmp_path: Path, name: str) -> None:
    put(tmp_path / name, 0, lines(0, 5))
    with pytest.raises(BadInput, match="cannot be a journal"):
        journals.list()
    assert journals.list("other/") == []
    (report,) = verify_all(journals)
    assert [p.kind for p in report.problems] == ["name"]


def test_overlaps_with_the_same_bytes_are_right(journals: Journals, folder: Path) -> None:
    data = lines(0, 60)
    for begin, end in ((0, 500), (0, 900), (400, 1500), (1500, len(data)), (1400, 1600)):
        put(folder, begin, data[begin:end], random.choice(EXTENSIONS))
    assert read_all(journals, "j") == data
    report = verify(journals, "j")
    assert report.problems == () and report.documents == 60 and report.bytes == len(data)


def test_overlaps_with_other_bytes_are_told(journals: Journals, folder: Path) -> None:
    data = lines(0, 60)
    put(folder, 0, data, ".zst")
    at = data.index(b'"n":7}') + 4
    other = put(folder, 0, data[:at] + b"8" + data[at + 1 : 1000], ".gz")
    problems = verify(journals, "j").problems
    assert [(p.kind, p.file, p.offset) for p in problems] == [("overlap", f"j/{other.name}", at)]
    with pytest.raises(CorruptFile, match=f"{other.name} has other bytes from offset {at} on") as caught:
        read_all(journals, "j")
    assert caught.value.hint and "move the other one away" in caught.value.hint
    other.unlink()
    assert read_all(journals, "j") == data


@pytest.mark.parametrize("begin", [0, 300, 900])
def test_overlaps_with_other_bytes_are_told_wherever_they_are(
    journals: Journals, folder: Path, begin: int
) -> None:
    data = lines(0, 60)
    put(folder, 0, data[:1000], ".gz")
    put(folder, 900, data[900:])
    put(folder, begin, data[begin:949] + b"#", ".zst")
    with pytest.raises(CorruptFile, match="has other bytes"):
        read_all(journals, "j")


@pytest.mark.parametrize("stored", [b"no gzip", None], ids=["no gzip", "its first byte flipped"])
def test_a_broken_file_that_is_not_needed_does_no_harm(
    journals: Journals, folder: Path, caplog: pytest.LogCaptureFixture, stored: bytes | None
) -> None:
    data = lines(0, 60_000)
    assert len(data) > 3 << 20
    put(folder, 0, data)
    part = data[:-1000]
    broken = put(folder, 0, part, ".gz", stored=stored or packed(b"#" + part[1:], ".gz"))
    assert read_all(journals, "j") == data
    assert broken.name in caplog.text


def test_a_comparison_that_failed_is_made_again(
    journals: Journals, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = lines(0, 60)
    put(folder, 0, data)
    put(folder, 0, data[:499] + b"#")
    with monkeypatch.context() as patch:
        patch.setattr(contents, "difference", Mock(side_effect=OSError("connection reset")))
        with pytest.raises(OSError, match="reset"):
            read_all(journals, "j")
    with pytest.raises(CorruptFile, match="has other bytes"):
        read_all(journals, "j")


def test_lines_that_are_no_documents_are_told_with_their_offsets(journals: Journals, folder: Path) -> None:
    good = lines(0, 1)
    bad = [b"no json\n", b"[]\n", b"{}\n", b'{"_meta":{"uuid":"x"}}\n', b'{"a":"\xff"}\n']
    hints = b'{"_meta":{"uuid":"00000000-0000-1000-8002-01aabbccddee","ack":true},"hints":7}\n'
    put(folder, 0, b"".join(good + each for each in [*bad, hints]))
    report = verify(journals, "j")
    assert [p.kind for p in report.problems] == ["line", "line", "uuid", "uuid", "line", "uuid"]
    assert report.problems[1].offset == 2 * len(good) + len(bad[0])
    assert report.documents == 6 + 3


def test_problems_without_end_are_counted(journals: Journals, folder: Path) -> None:
    put(folder, 0, b"x\n" * 5000, ".gz")
    report = verify(journals, "j")
    assert (len(report.problems), report.more) == (1000, 4000)


def test_listing(journals: Journals, tmp_path: Path) -> None:
    data = lines(0, 2)
    put(tmp_path / "b/region=eu/pivot=00/utc_date=2026-01-05/utc_hour=07", 0, data, ".gz")
    put(tmp_path / "b/region=eu/pivot=00/utc_date=2026-01-06", len(data), lines(2, 4), ".zst")
    put(tmp_path / "a", 0, data)
    put(tmp_path / "a/below", 7, b"")
    (tmp_path / ".hidden").mkdir()
    put(tmp_path / ".hidden/x", 0, data)
    (tmp_path / "nothing/here").mkdir(parents=True)
    with JournalWriter(tmp_path) as writer:
        writer.append("c", [])
    assert journals.list() == ["a", "a/below", "b/region=eu/pivot=00", "c"]
    assert journals.list("a/") == ["a/below"]
    assert journals.list("b/reg") == ["b/region=eu/pivot=00"]
    assert journals.list("nope/x") == []
    assert read_all(journals, "b/region=eu/pivot=00") == lines(0, 4)
    assert [(s.journal, s.fragments, s.head) for s in journals.summaries()] == [
        ("a", 1, len(data)),
        ("a/below", 1, 7),
        ("b/region=eu/pivot=00", 2, len(lines(0, 4))),
        ("c", 0, 0),
    ]
    assert pickle.loads(pickle.dumps(journals)) == journals


def test_ten_thousand_journals(tmp_path: Path) -> None:
    for n in range(10_000):
        folder = tmp_path / f"customer={n}"
        folder.mkdir()
        (folder / f"{0:016x}-{0:016x}-{'0' * 40}").touch()
    assert len(Journals(tmp_path).list()) == 10_000


def upload(url: str, name: str, path: Path) -> None:
    filesystem, base = filesystem_of(url)
    # By itself, pyarrow would compress by the file's name.
    with filesystem.open_output_stream(f"{base}/{name}", compression=None) as stream:
        stream.write(path.read_bytes())


def test_an_object_store(s3: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    endpoint = urlsplit(s3.endpoint).netloc
    url = f"s3://{s3.bucket}/{tmp_path.name}?region=us-east-1&scheme=http&endpoint_override={endpoint}"
    data, position = lines(0, 500), 0
    for extension in EXTENSIONS:
        part = data[position : position + 8000] if extension != ".zst" else data[position:]
        path = put(tmp_path / "a/pivot=00/d=1", position, part, extension)
        upload(url, str(path.relative_to(tmp_path)), path)
        position += len(part)
    journals = Journals(url)
    assert journals.list() == ["a/pivot=00"] and journals.list("b") == []
    assert journals.head("a/pivot=00") == len(data)
    assert journals.summaries()[0].written is not None
    assert read_all(journals, "a/pivot=00", limit=5000) == data
    start = len(lines(0, 300))
    assert read_all(journals, "a/pivot=00", start) == data[start:], "also when it is known to be right"
    assert verify(journals, "a/pivot=00").is_right
    assert journals.reader("nope").read(10) is None
    bad = put(tmp_path / "bad", 0, data, ".zst", stored=packed(data[:-1] + b"x", ".zst"))
    upload(url, f"bad/{bad.name}", bad)
    with pytest.raises(CorruptFile, match="SHA-1"):
        read_all(journals, "bad")
    with pytest.raises(UsageError, match="in folders only"):
        JournalWriter(url)

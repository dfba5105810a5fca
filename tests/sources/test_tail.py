"""Growing files: whole lines only, once each, through renaming, emptying, moves and inodes that come back."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, DefinitionError, UsageError
from penstock.sources import Lines, TailSource
from penstock.sources.conformance import NAMES, check
from penstock.sources.files.followed import Followed
from penstock.sources.files.tail import TailPart
from penstock.types.tables import Table, derived
from tests.sources.conftest import Orders, json_lines, orders, read, stored


class Located(Table):
    path: str
    line: str
    words: int = derived()


class Ids(Table):
    id: int


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def lines(part: TailPart, limit: int = 1000) -> list[str]:
    return [row["line"] for row in read(part, limit)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


@pytest.fixture
def log(folder: Path) -> Path:
    return folder / "app.log"


@pytest.fixture
def source(log: Path) -> TailSource:
    return TailSource(log)


@pytest.fixture
def part(source: TailSource) -> TailPart:
    return source.build_part("app.log", None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("format_", ["lines", "jsonl", "csv"])
def test_conformance(folder: Path, format_: Any, name: str) -> None:
    table: type[Table] = Orders
    if format_ == "lines":
        table, text = Lines, "".join(f"line {n}{chr(13) * (n % 2)}\n\n" for n in range(60)) + "half"
    elif format_ == "jsonl":
        text = json_lines(orders(80)) + '{"id": 1'
    else:
        rows = (f'{n},{n}.5,"a ""{n}""\n",2026-01-01T00:00:{n % 60:02d}Z\n' for n in range(80))
        text = "id,price,note,at\n" + "".join(rows) + '9,9.5,"open\n'
    append(folder / "a.log", text)
    append(folder / "b.log", text[: len(text) // 3])
    check(TailSource(folder / "*.log", table, format=format_), only=name, quiet=0.05)


# lines


def test_only_whole_lines_are_rows(log: Path, part: TailPart) -> None:
    assert part.poll(5) is None
    append(log, "one\ntwo\nthr")
    assert lines(part) == ["one", "two"]
    assert part.poll(5) is None
    append(log, "ee\n\n")
    assert lines(part) == ["three", ""]
    append(log, "vier \r\n\rfünf\r\r\n")
    assert lines(part, 1) == ["vier ", "\rfünf\r"]
    assert not part.is_finished()


def test_a_file_that_is_not_there_yet_is_waited_for(log: Path, source: TailSource, part: TailPart) -> None:
    assert source.list_parts() == ["app.log"]
    assert part.poll(1) is None
    again = source.build_part("app.log", stored(part.snapshot()))
    append(log, "a\n")
    assert lines(again) == ["a"]


def test_a_line_that_is_written_byte_by_byte(log: Path, part: TailPart) -> None:
    for byte in "grün".encode():
        append(log, bytes([byte]))
        assert part.poll(9) is None
    append(log, "\n")
    assert lines(part) == ["grün"]


def test_a_very_long_line_and_many_short_ones(log: Path, part: TailPart) -> None:
    long = "x" * 3_000_000
    append(log, f"{long}\n" + "".join(f"{n}\n" for n in range(100_000)))
    found = lines(part, 7_000)
    assert found[0] == long
    assert found[1:] == [str(n) for n in range(100_000)]


def test_the_path_comes_along_if_the_table_asks_for_it(folder: Path) -> None:
    append(folder / "a.log", "x\ny\n")
    source = TailSource(folder / "*.log", Located)
    assert read(source.build_part("a.log", None)) == [
        {"path": f"{folder}/a.log", "line": "x"},
        {"path": f"{folder}/a.log", "line": "y"},
    ]


def test_bytes_that_are_no_text_stop_it_or_are_replaced(
    log: Path, source: TailSource, part: TailPart
) -> None:
    append(log, b"good\nb\xffad\xe2\nrest\n")
    with pytest.raises(BadInput, match=r"app\.log, rows 0-3, .*errors=\"replace\""):
        part.poll(10)
    replacing = TailSource(log, errors="replace").build_part("app.log", None)
    assert lines(replacing) == ["good", "b\ufffdad\ufffd", "rest"]


def test_a_part_that_is_suspended_or_moved_goes_on(log: Path, source: TailSource, part: TailPart) -> None:
    append(log, "a\nb\nc\n")
    assert len(read(part, 1, most=1)) == 1
    part.suspend()
    assert len(read(part, 1, most=1)) == 1
    state = stored(part.collect())
    part.close()
    append(log, "d\n")
    assert lines(source.build_part("app.log", state)) == ["c", "d"]


# other formats


def test_json_lines(log: Path) -> None:
    part = TailSource(log, Ids, format="jsonl").build_part("app.log", None)
    append(log, '{"id": 1, "more": [1]}\n\n{"id": 2}\n{"id"')
    assert read(part) == [{"id": 1}, {"id": 2}]
    append(log, ": 3}\n")
    assert read(part) == [{"id": 3}]
    append(log, '{"id": "x"}\n')
    with pytest.raises(BadInput, match=r"app\.log, rows 3-4"):
        part.poll(1)


def test_a_line_that_is_null_is_told(log: Path) -> None:
    part = TailSource(log, Ids, format="jsonl").build_part("app.log", None)
    append(log, '\n null\n{"id": 2}\n')
    with pytest.raises(BadInput, match=r"app\.log, rows 0-2.*null"):
        part.poll(10)


def test_csv_begins_after_its_header_in_each_file(log: Path, folder: Path) -> None:
    source = TailSource(log, Ids, format="csv", delimiter=";")
    part = source.build_part("app.log", None)
    append(log, "\ufeffname")
    assert part.poll(1) is None
    append(log, ";id\n")
    assert part.poll(1) is None
    append(log, '"a\nb";1\n"open;')
    assert read(part) == [{"id": 1}]
    append(log, 'x\n";2\n')
    again = source.build_part("app.log", stored(part.snapshot()))
    assert read(again) == [{"id": 2}]
    log.rename(folder / "app.log.1")
    append(log, "id;name\n3;c\n")
    assert read(again) == [{"id": 3}]


def test_csv_with_and_without_zones(log: Path) -> None:
    part = TailSource(log, Orders, format="csv").build_part("app.log", None)
    append(log, "id,price,note,at\n1,1,,2026-01-01 10:00:00\n")
    append(log, "2,1,,2026-01-01 12:00:00+02:00\n")
    found = [row["at"].isoformat() for row in read(part, 1)]
    assert found == ["2026-01-01T10:00:00+00:00"] * 2


def test_a_header_that_does_not_fit_is_told(log: Path) -> None:
    append(log, "name,nr\nx,1\n")
    with pytest.raises(BadInput, match=r"app\.log has no column id"):
        TailSource(log, Ids, format="csv").build_part("app.log", None).poll(1)
    log.write_text("id,id\n")
    with pytest.raises(BadInput, match="the column id twice"):
        TailSource(log, Ids, format="csv").build_part("app.log", None).poll(1)


# renamed


@pytest.mark.parametrize("built_anew", [False, True])
def test_a_renamed_file_is_read_to_its_end_and_then_the_new_one(
    log: Path, source: TailSource, part: TailPart, built_anew: bool, caplog: pytest.LogCaptureFixture
) -> None:
    append(log, "a\nb\n")
    assert lines(part) == ["a", "b"]
    append(log, "c\n")
    old = log.rename(f"{log}.1")
    append(log, "")
    if built_anew:
        state = stored(part.snapshot())
        part.close()
        part = source.build_part("app.log", state)
    assert lines(part) == ["c"]
    append(old, "d\n")  # a writer that has not opened the new file yet
    assert lines(part) == ["d"]
    assert not warnings(caplog)
    append(log, "e\n")
    assert lines(part) == ["e"]
    (said,) = warnings(caplog)
    assert "app.log is another file now" in said and "0 bytes" in said
    assert lines(source.build_part("app.log", stored(part.snapshot()))) == []


def test_what_was_written_right_before_the_next_file_is_not_missed(log: Path, part: TailPart) -> None:
    append(log, "a\n")
    assert lines(part) == ["a"]
    append(log, "b\n")
    log.rename(f"{log}.1")
    append(log, "c\n")
    assert lines(part, 1) == ["b", "c"]


def test_a_renaming_while_the_file_is_read_loses_nothing(
    log: Path, part: TailPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, renamed = Followed.read_at, log.with_name("app.log.1")

    def rename_behind_the_end(self: Followed, size: int, offset: int) -> bytes:
        found = plain(self, size, offset)
        if offset == 2 and not found and not renamed.exists():
            append(log, "b\n")
            log.rename(renamed)
            append(log, "c\n")
        return found

    monkeypatch.setattr(Followed, "read_at", rename_behind_the_end)
    append(log, "a\n")
    assert lines(part) == ["a"]
    assert renamed.exists()
    assert lines(part) == ["b", "c"]


def test_rows_that_were_not_committed_come_again_from_the_renamed_file(
    log: Path, source: TailSource, part: TailPart
) -> None:
    append(log, "a\nb\nc\n")
    read(part, 1, most=1)
    committed = stored(part.snapshot())
    assert lines(part) == ["b", "c"]
    log.rename(f"{log}.1")
    append(log, "d\n")
    assert lines(part) == ["d"]
    assert lines(source.build_part("app.log", committed)) == ["b", "c", "d"]


def test_a_half_line_at_the_end_of_a_renamed_file_is_no_row(
    log: Path, part: TailPart, caplog: pytest.LogCaptureFixture
) -> None:
    append(log, "a\nhalf")
    assert lines(part) == ["a"]
    log.rename(f"{log}.1")
    append(log, "b\n")
    assert lines(part) == ["b"]
    assert "4 bytes behind it are no complete row" in warnings(caplog)[0]


def test_a_file_that_is_removed_is_read_to_its_end_where_it_is_open(log: Path, part: TailPart) -> None:
    append(log, "a\n")
    assert lines(part) == ["a"]
    append(log, "b\n")
    part.suspend()
    log.unlink()
    assert lines(part) == ["b"]
    append(log, "c\n")
    assert lines(part) == ["c"]


def test_a_file_that_is_removed_is_lost_elsewhere_and_that_is_said(
    log: Path, folder: Path, source: TailSource, part: TailPart, caplog: pytest.LogCaptureFixture
) -> None:
    append(log, "a\n")
    assert lines(part) == ["a"]
    append(log, "b\n")
    os.link(log, folder.parent / "keeps-the-inode")
    log.unlink()
    other = source.build_part("app.log", stored(part.snapshot()))
    assert other.poll(1) is None
    assert not warnings(caplog)
    append(log, "c\n")
    assert lines(other) == ["c"]
    (said,) = warnings(caplog)
    assert "behind byte 2 is lost" in said
    assert lines(other) == [] and not warnings(caplog)


def test_a_renaming_before_the_first_row_was_read(log: Path, source: TailSource, part: TailPart) -> None:
    append(log, "half")
    assert part.poll(1) is None
    append(log, " and half\n")
    log.rename(f"{log}.1")
    append(log, "b\n")
    assert lines(source.build_part("app.log", stored(part.snapshot()))) == ["half and half", "b"]


def test_old_files_that_the_pattern_matches_are_left_to_their_own_part(folder: Path) -> None:
    """Then rows may come twice, under two names; but not from one part."""
    append(folder / "a.log", "1\n")
    source = TailSource(folder / "*.log")
    part = source.build_part("a.log", None)
    assert lines(part) == ["1"]
    state = stored(part.snapshot())
    part.close()
    append(folder / "a.log", "2\n")
    (folder / "a.log").rename(folder / "old.log")
    append(folder / "a.log", "3\n")
    assert lines(source.build_part("a.log", state)) == ["3"]


# emptied


@pytest.mark.parametrize("built_anew", [False, True])
@pytest.mark.parametrize("fresh", ["", "x\n", "much longer than it was before\n"])
def test_an_emptied_file_is_read_from_its_begin(
    log: Path,
    source: TailSource,
    part: TailPart,
    built_anew: bool,
    fresh: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    append(log, "a\nb\nc\n")
    assert lines(part) == ["a", "b", "c"]
    part.suspend()
    os.truncate(log, 0)
    append(log, fresh)
    if built_anew:
        part = source.build_part("app.log", stored(part.snapshot()))
    assert lines(part) == fresh.split("\n")[:-1]
    (said,) = warnings(caplog)
    assert "app.log was emptied or written anew" in said and "behind byte 6 is lost" in said
    append(log, "end\n")
    assert lines(part) == ["end"]
    assert not warnings(caplog)


def test_lines_that_were_read_ahead_still_come_when_the_file_is_emptied(log: Path, part: TailPart) -> None:
    append(log, "a\nb\n")
    assert len(read(part, 1, most=1)) == 1
    os.truncate(log, 0)
    append(log, "c\n")
    assert lines(part, 1) == ["b", "c"]


def test_an_inode_that_comes_back_is_another_file(
    log: Path, folder: Path, source: TailSource, part: TailPart, caplog: pytest.LogCaptureFixture
) -> None:
    """The next file may well get the inode of the one that was removed; here it is made to."""
    append(log, "same\nold\n")
    assert lines(part) == ["same", "old"]
    state = stored(part.snapshot())
    part.close()
    log.write_text("same\nnew\nmore\n")
    assert lines(source.build_part("app.log", state)) == ["same", "new", "more"]
    assert len(warnings(caplog)) == 1


def test_only_the_bytes_before_the_place_tell_two_files_apart(
    log: Path, source: TailSource, part: TailPart
) -> None:
    head = "h" * 1000
    append(log, f"{head}\nold 1\n")
    assert len(lines(part)) == 2
    state = stored(part.snapshot())
    log.write_text(f"{head}\nnew 1\nnew 2\n")
    assert lines(source.build_part("app.log", state)) == [head, "new 1", "new 2"]


# which files


def test_a_pattern_finds_files_as_they_come(folder: Path) -> None:
    source = TailSource(f"{folder}/**/*.log")
    assert source.list_parts() == []
    for name in ("b.log", "x/y/a.log", ".hidden.log", "c.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        append(folder / name, "1\n")
    (folder / "folder.log").mkdir()
    assert source.list_parts() == ["b.log", "x/y/a.log"]
    assert lines(source.build_part("x/y/a.log", None)) == ["1"]
    assert source.grows


@pytest.mark.parametrize(
    "name", ["app.log.1", "app.log.2.gz", "app.log-20260101", "app.log.gz", "app.log.old"]
)
def test_a_pattern_that_also_matches_old_files_is_refused(folder: Path, name: str) -> None:
    append(folder / name, "1\n")
    with pytest.raises(UsageError, match="may be an old file that was named app") as caught:
        TailSource(folder / "app*").list_parts()
    assert caught.value.left is not None and "twice" in caught.value.left


@pytest.mark.parametrize("pattern", ["day-*", "*-2026.txt", "*.[0-9]"])
def test_names_with_numbers_are_fine_where_they_cannot_be_old_files(folder: Path, pattern: str) -> None:
    for name in ("day-20260101", "app-2026.txt", "part.7"):
        append(folder / name, "1\n")
    assert len(TailSource(folder / pattern).list_parts()) == 1


def test_what_names_and_states_refer_to(log: Path) -> None:
    assert TailSource(log).describe() == {"files": str(log), "format": "lines"}
    csv = TailSource(log, Orders, format="csv", header=False).describe()["csv"]
    assert csv == {"header": False, "delimiter": ",", "quote": '"', "null_values": "''"}


def test_compressed_files_folders_and_urls_are_refused(folder: Path) -> None:
    append(folder / "a.gz", "x")
    with pytest.raises(BadInput, match=r"a\.gz is compressed"):
        TailSource(folder / "*.gz").list_parts()
    with pytest.raises(UsageError, match="is a folder"):
        TailSource(folder).list_parts()
    with pytest.raises(UsageError, match="only local files"):
        TailSource("s3://bucket/*.log")


def test_options_and_tables_that_make_no_sense_are_refused(log: Path) -> None:
    with pytest.raises(UsageError, match="no format 'xml'"):
        TailSource(log, format="xml")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unknown option 'delimiter'"):
        TailSource(log, delimiter=";")
    for table in (Ids, Orders):
        with pytest.raises(DefinitionError, match="cannot hold plain lines"):
            TailSource(log, table)


# all of it at once


@pytest.mark.parametrize("seed", range(40))
def test_every_line_once_through_renamings_crashes_and_moves(
    log: Path, source: TailSource, seed: int
) -> None:
    """An oracle: whatever is committed is a prefix of what was written, and in the end it is all of it."""
    chance = random.Random(seed)
    written: list[str] = []
    committed: list[str] = []
    state, part = None, source.build_part("app.log", None)
    for step in range(120):
        action = chance.choice(["write", "write", "epoch", "epoch", "crash", "rename", "move", "abort"])
        if action == "write":
            fresh = [f"{step}-{n}" * chance.randint(1, 40) for n in range(chance.randint(1, 5))]
            append(log, "".join(f"{line}\n" for line in fresh))
            written += fresh
        elif action == "rename" and log.exists() and _all_seen(state, log):
            log.rename(f"{log}.{step}")
        elif action == "epoch":
            rows = read(part, chance.randint(1, 4), most=chance.randint(1, 9))
            state = stored(part.snapshot())
            committed += [row["line"] for row in rows]
            part.suspend()
        elif action == "abort":
            read(part, 3, most=5)
        if action in ("crash", "move", "abort"):
            if action == "move":
                part.close()
            part = source.build_part("app.log", state)
        assert committed == written[: len(committed)]
    committed += lines(part)
    append(log, "last\n")
    committed += lines(part)
    assert committed == [*written, "last"]


def _all_seen(state: Any, log: Path) -> bool:
    """Files between two renamings are not read: one is renamed only when the reader has come to it."""
    return state is not None and bool(state["inode"] == log.stat().st_ino)

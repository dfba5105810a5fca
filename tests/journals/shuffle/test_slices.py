"""What a slice reads, in which order, and what it makes of what it finds."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, JournalGap
from penstock.journals import JournalReader, Journals
from penstock.journals.format.documents import encode_ack
from penstock.journals.format.hints import Hint
from penstock.journals.format.uuids import SECOND, Flag, Stamp, clock_time, encode
from penstock.journals.shuffle.sequencing.columns import Lines, Parser
from penstock.journals.shuffle.sequencing.sequencing import (
    OutsideInTransaction,
    PartialCommit,
    ProducerForgotten,
)
from penstock.journals.shuffle.slices import readers, replays, slices
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.sources.journals import JournalSource
from penstock.types.tables import Table
from tests.journals.shuffle.desk import TODAY, Desk, Items, ack, line, producer

A, B, C = "j/a", "j/b", "j/c"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_PIECE", 150)
    monkeypatch.setattr(slices, "BLOCK", 300)
    monkeypatch.setattr(replays, "BLOCK", 300)


# how far a slice reads


def test_it_reads_on_from_where_it_stands(desk: Desk) -> None:
    desk.source()
    desk.write(A, line(1, 16), line(2, 32))
    desk.write(B, line(3, 48, who=2))
    assert desk.ids() == [1, 2, 3]
    assert desk.ids() == []
    desk.write(A, line(4, 64))
    assert desk.ids() == [4]
    assert desk.at(A).offset == desk.log.heads[A]


def test_only_what_moved_is_told(desk: Desk) -> None:
    desk.source()
    desk.write(A, line(1, 16))
    desk.write(B, line(2, 32))
    desk.slice()
    desk.write(B, line(3, 48))
    found, _ = desk.slice()
    assert [str(read) for read in found.positions] == ["items/j/b"]
    assert list(found.progress.journals) == ["items/j/b"]


def test_documents_wait_for_the_delay_with_those_behind_them(desk: Desk) -> None:
    desk.source(read_delay=10.0)
    early, late = line(1, SECOND), line(2, 5 * SECOND)
    desk.write(A, early, late, line(3, 2 * SECOND, who=2))
    desk.write(B, line(4, 3 * SECOND))
    assert desk.ids(now=11 * SECOND - 1) == []
    assert desk.ids(now=11 * SECOND) == [1]
    assert desk.at(A).offset == len(early)
    assert desk.ids(now=14 * SECOND) == [4]
    assert desk.ids(now=15 * SECOND) == [2, 3]
    assert desk.at(A).offset == desk.log.heads[A]


def test_a_transaction_waits_for_the_delay_of_its_ack(desk: Desk) -> None:
    desk.source(read_delay=1.0)
    desk.write(A, line(1, 16, Flag.CONTINUE), ack(3 * SECOND))
    assert desk.ids(now=2 * SECOND) == []
    assert desk.at(A).producers[producer(1)].sequence.is_open
    assert desk.ids(now=4 * SECOND) == [1]


def test_journals_that_wait_do_not_use_up_the_limit_of_others(desk: Desk) -> None:
    desk.source("a-slow", prefix="slow", read_delay=3600.0)
    desk.source("fast", prefix="fast")
    for n in range(3):
        desk.write(f"slow/{n}", *(line(100 + n, 16 * k + 16, name="x" * 1000) for k in range(80)))
    desk.write("fast/a", line(1, 1600))
    assert desk.ids(now=SECOND, most=100_000) == [1]


@pytest.mark.usefixtures("in_small_pieces")
def test_journals_of_a_higher_priority_are_read_to_their_end_first(desk: Desk) -> None:
    desk.source("high", prefix="high", priority=2)
    desk.source("low", prefix="low", priority=1)
    desk.write("low/a", *(line(n, 16 + n) for n in range(20)))
    desk.write("high/a", *(line(100 + n, 1600 + n) for n in range(20)))
    found: list[int] = []
    while len(found) < 40:
        more = desk.ids(most=200)
        assert more
        # The call that reads the end of the first goes on with the second.
        found += sorted(more, key=lambda id_: id_ < 100)
    assert found[:20] == list(range(100, 120))
    assert found[20:] == list(range(20))


@pytest.mark.usefixtures("in_small_pieces")
def test_the_journal_that_is_furthest_behind_is_read_first(desk: Desk) -> None:
    desk.source()
    desk.write(A, *(line(n, 1000 + 16 * n) for n in range(10)))
    desk.write(B, *(line(100 + n, 5000 + 16 * n, who=2) for n in range(10)))
    # Nothing is known of a journal before it was read.
    first = [desk.ids(most=1), desk.ids(most=1)]
    assert sorted(bool(ids[0] < 100) for ids in first) == [False, True]
    found = [id_ for _ in range(4) for id_ in desk.ids(most=1)]
    assert max(found) < 10


def test_the_limits_of_rows_and_time_hold(desk: Desk, in_small_pieces: None) -> None:
    desk.source()
    desk.write(A, *(line(n, 16 + 16 * n) for n in range(50)))
    assert 5 <= len(desk.ids(rows=5)) < 20
    assert desk.ids(seconds=0.0) == []
    assert len(desk.ids()) > 30


def test_only_documents_of_the_time_asked_for_are_handed_on(desk: Desk) -> None:
    first, end = clock_time(TODAY + 10 * SECOND), clock_time(TODAY + 20 * SECOND)
    desk.source(not_before=first, not_after=end)
    desk.write(A, *(line(n, n * SECOND) for n in (9, 10, 11, 19, 20, 21)))
    assert desk.ids() == [10, 11, 19]
    desk.write(A, line(15, 30 * SECOND, Flag.CONTINUE), ack(31 * SECOND))
    assert desk.ids() == []


def test_the_meta_fields_say_what_is_known_of_a_document(desk: Desk) -> None:
    class Stamped(Table):
        id: int
        uuid: str
        journal: str
        place: int
        at: datetime
        who: str

    meta = {"uuid": "uuid", "journal": "journal", "place": "offset", "at": "time", "who": "producer"}
    desk.source(table=Stamped, meta=meta)
    first, second = line(1, 16), line(2, 7 * SECOND + 1, who=2)
    desk.write(A, first, second)
    _, rows = desk.slice()
    by_id = {row["id"]: row for row in rows}
    assert by_id[2] == {
        "id": 2,
        "uuid": json.loads(second)["_meta"]["uuid"],
        "journal": A,
        "place": len(first),
        "at": clock_time(TODAY + 7 * SECOND).astimezone(UTC),
        "who": "010000000002",
    }


# documents that cannot be rows


class Strict(Table):
    id: int
    day: date | None
    inner: Items | None


SCHEMA = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 10}}}
UNFIT = {
    "the schema": ({"id": 11}, "11 is greater than"),
    "a field that lacks": ({}, "no id"),
    "a null": ({"id": None}, "no id"),
    "a wrong type": ({"id": "x"}, "id"),
    "a wrong date": ({"id": 2, "day": "2024-02-30"}, "day"),
    "a null within": ({"id": 2, "inner": {"name": "x"}}, "inner.id is null"),
}


@pytest.mark.parametrize(("members", "why"), UNFIT.values(), ids=UNFIT)
def test_a_document_that_is_no_row_fails_with_its_place(
    desk: Desk, members: dict[str, Any], why: str
) -> None:
    desk.source(table=Strict, schema=SCHEMA)
    good = [line(n, 16 + n) for n in range(5)]
    desk.write(A, *good, line(None, 160, **members), line(7, 320))
    desk.write(B, line(8, 16))
    with pytest.raises(BadInput, match=why) as caught:
        desk.slice()
    assert caught.value.what.startswith(f"source items, journal {A}, offset {sum(map(len, good))}: ")
    assert desk.positions == {}
    assert list(desk.storage.list("")) == []


@pytest.mark.parametrize(("members", "why"), UNFIT.values(), ids=UNFIT)
def test_a_document_that_is_no_row_can_be_left_out(
    desk: Desk, members: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk.source(table=Strict, schema=SCHEMA, on_invalid="skip", key=["/id"])
    desk.write(A, line(1, 16), line(None, 32, **members), line(3, 48), line(None, 64, **members))
    desk.write(B, line(4, 16, who=2), line(None, 32, who=2, **members))
    assert desk.ids() == [1, 3, 4]
    assert (desk.at(A).left_out, desk.at(B).left_out) == (2, 1)
    assert "left out, with 2 others" in caplog.text
    desk.write(A, line(None, 80, **members))
    assert desk.ids() == []
    assert desk.at(A).left_out == 3


def test_a_schema_is_about_documents_without_what_journals_add(desk: Desk) -> None:
    desk.source(schema={"properties": {"id": {}}, "additionalProperties": False})
    desk.write(A, line(1, 16))
    assert desk.ids() == [1]
    desk.write(A, line(2, 32, more=1))
    with pytest.raises(BadInput, match="more"):
        desk.slice()


def test_documents_of_a_replay_are_left_out_too(desk: Desk) -> None:
    desk.source(on_invalid="skip")
    desk.write(A, line(1, 16, Flag.CONTINUE), line("x", 32, Flag.CONTINUE))
    assert desk.ids() == []
    assert desk.at(A).left_out == 0
    desk.write(A, ack(48))
    assert desk.ids() == [1]
    assert desk.at(A).left_out == 1


def test_what_is_never_handed_on_need_not_be_a_row(desk: Desk) -> None:
    class Hints(Table):
        id: int
        hints: str | None

    desk.source(table=Hints, schema={"required": ["id"]})
    desk.write(A, line(1, 16), line("rolled back", 32, Flag.CONTINUE), ack(16), line("again", 16))
    desk.write(A, line(2, 48, Flag.CONTINUE), ack(64, hints={"elsewhere": 64}))
    assert desk.ids() == [1, 2]


# what journals lack


def remove(desk: Desk, journal: str, number: int) -> bytes:
    """Take away a fragment of a journal."""
    path = sorted((desk.log.root / journal).iterdir())[number]
    data = path.read_bytes()
    path.unlink()
    return data


def test_bytes_that_are_lost_fail_the_reading(desk: Desk) -> None:
    desk.source()
    for n in range(3):
        desk.write(A, line(n, 16 + 16 * n))
    remove(desk, A, 1)
    with pytest.raises(JournalGap, match=A):
        desk.slice()


def test_bytes_that_are_lost_can_be_passed_over_and_are_counted(desk: Desk) -> None:
    desk.source(on_gap="skip")
    for n in range(5):
        desk.write(A, line(n, 16 + 16 * n))
    lost = remove(desk, A, 3), remove(desk, A, 1)
    assert desk.ids() == [0, 2, 4]
    assert desk.at(A).lost == sum(map(len, lost))
    assert desk.at(A).offset == desk.log.heads[A]


def test_a_journal_that_lost_its_begin_goes_on_where_it_begins(desk: Desk) -> None:
    desk.source(on_gap="skip")
    desk.write(A, line(1, 16))
    desk.write(A, line(2, 32))
    lost = remove(desk, A, 0)
    assert desk.ids() == [2]
    assert desk.at(A).lost == len(lost)


def test_a_transaction_of_which_bytes_are_lost_fails(desk: Desk) -> None:
    desk.source()
    for n in range(4):
        desk.write(A, line(n, 16 + 16 * n, Flag.CONTINUE))
    assert desk.ids() == []
    remove(desk, A, 1)
    desk.write(A, ack(160))
    with pytest.raises(JournalGap, match=A) as caught:
        desk.slice()
    assert caught.value.begin > 0


def test_a_transaction_of_which_bytes_are_lost_is_left_out(desk: Desk) -> None:
    desk.source(on_gap="skip")
    for n in range(4):
        desk.write(A, line(n, 16 + 16 * n, Flag.CONTINUE))
    assert desk.ids() == []
    lost = remove(desk, A, 3), remove(desk, A, 1)
    desk.write(A, ack(160), line(9, 176))
    assert desk.ids() == [9]
    assert (desk.at(A).lost, desk.at(A).left_out) == (sum(map(len, lost)), 1)


def test_a_journal_is_opened_once_as_long_as_it_is_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a compressed fragment would be uncompressed from its begin by every call."""
    opened: list[int] = []
    reader = Journals.reader

    def watched(journals: Journals, journal: str, offset: int = 0) -> JournalReader:
        opened.append(offset)
        return reader(journals, journal, offset)

    monkeypatch.setattr(Journals, "reader", watched)
    desk.source()
    desk.write(A, *(line(n, 16 + n) for n in range(50)))
    found: list[int] = []
    while len(found) < 50:
        found += desk.ids(most=200)
    assert found == list(range(50))
    assert opened == [0]


# transactions


def test_a_transaction_of_many_calls_is_handed_on_as_a_whole(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, in_small_pieces: None
) -> None:
    """With no more in memory than a block."""
    held: list[int] = []
    parse = Parser.parse

    def watched(parser: Parser, pieces: Any) -> Lines:
        held.append(sum(len(piece.data) for piece in pieces))
        return parse(parser, pieces)

    monkeypatch.setattr(Parser, "parse", watched)
    desk.source()
    for n in range(200):
        others = [line(1000 + n, 17 + 16 * n, who=2)] if n % 3 == 0 else []
        desk.write(A, line(n, 16 + 16 * n, Flag.CONTINUE), line(n, 16 + 16 * n, Flag.CONTINUE), *others)
        if n % 50 == 49:
            assert all(id_ >= 1000 for id_ in desk.ids())
    begin = desk.at(A).producers[producer(1)].sequence.begin
    assert begin == 0
    desk.write(A, line(200, 8000, Flag.CONTINUE), ack(8016))
    assert desk.ids() == list(range(201))
    assert desk.ids() == []
    assert max(held) <= 300 + len(line(1000, 1 << 30))


def test_transactions_of_many_producers_in_one_journal(desk: Desk, in_small_pieces: None) -> None:
    desk.source()
    for n in range(30):
        desk.write(A, line(n, 16 + 16 * n, Flag.CONTINUE, who=n % 5))
        desk.slice()
    desk.write(A, *(ack(1600 + who, who=who) for who in range(4)), ack(-TODAY, who=4))
    assert desk.ids() == [n for n in range(30) if n % 5 != 4]
    assert desk.ids() == []


def test_a_document_outside_of_an_open_transaction_is_an_error_with_names(desk: Desk) -> None:
    desk.source()
    desk.write(A, line(1, 16, Flag.CONTINUE), line(2, 32))
    with pytest.raises(OutsideInTransaction, match=rf"{A}.*{producer(1):012x}"):
        desk.slice()


def test_an_ack_of_a_part_is_an_error_with_names(desk: Desk) -> None:
    desk.source()
    desk.write(A, line(1, 16, Flag.CONTINUE, who=3), line(2, 64, Flag.CONTINUE, who=3))
    desk.slice()
    desk.write(A, ack(32, who=3))
    with pytest.raises(PartialCommit, match=rf"{A}.*{producer(3):012x}"):
        desk.slice()


# many journals


def test_not_all_journals_are_open_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_OPEN", 4)
    most = 0
    keep = readers.Readers._keep

    def watched(self: readers.Readers, *given: Any) -> None:
        nonlocal most
        keep(self, *given)
        most = max(most, len(self._open))

    monkeypatch.setattr(readers.Readers, "_keep", watched)
    desk.source()
    for n in range(30):
        desk.write(f"j/{n:02}", line(2 * n, 16), line(2 * n + 1, 32))
    assert desk.ids() == list(range(60))
    assert most == 4


def test_journals_appear_vanish_and_come_back(desk: Desk) -> None:
    desk.source()
    desk.write(A, line(1, 16))
    desk.write(B, line(2, 16, who=2))
    assert desk.ids() == [1, 2]
    away = desk.log.root.with_name("away")
    (desk.log.root / A).rename(away)
    desk.write(C, line(3, 48))
    assert desk.ids() == [3]
    away.rename(desk.log.root / A)
    desk.write(A, line(4, 64))
    desk.write(B, line(5, 64, who=2))
    assert desk.ids() == [4, 5]


# hints


@pytest.mark.parametrize(
    "hints", ["3", "null", "[1]", '[{"j":[0,"j/b"]}]', '[{"j":[5,"b"],"p":[]}]', '[{"j":[0,""],"p":[]}]']
)
def test_a_malformed_hint_is_named(desk: Desk, hints: str) -> None:
    desk.source()
    before = line(1, 16, Flag.CONTINUE)
    desk.write(A, before, ack(32).replace(b'"hints":[]', b'"hints":' + hints.encode()))
    with pytest.raises(BadInput, match=f"journal {A}, offset {len(before)}: .*hint"):
        desk.slice()


def hinted(desk: Desk) -> dict[str, int]:
    progress = desk.slice()[0].progress
    return {journal: mark.hinted_commit - TODAY for journal, mark in progress if mark.hinted_commit}


def test_hints_are_told_for_every_source_that_reads_the_journal(desk: Desk) -> None:
    desk.source("all")
    desk.source("some", prefix=B)
    desk.source("others", prefix="k/")
    desk.write(A, line(1, 16, Flag.CONTINUE), ack(32, hints={B: 48, "k/x": 64, "elsewhere": 80}))
    assert hinted(desk) == {
        "all/j/b": 48,
        "some/j/b": 48,
        "all/k/x": 64,
        "others/k/x": 64,
        "all/elsewhere": 80,
    }
    assert hinted(desk) == {}


@pytest.mark.parametrize("options", [{"read_delay": 1.0}, {"priority": 1}])
def test_hints_count_within_a_cohort_alone(desk: Desk, options: dict[str, Any]) -> None:
    desk.source("one", prefix=A)
    desk.source("two", prefix=B)
    desk.source("other", prefix=B, **options)
    desk.write(A, line(1, 16, Flag.CONTINUE), ack(32, hints={B: 48}))
    assert hinted(desk) == {"two/j/b": 48}


def test_hints_count_below_their_own_root_alone(desk: Desk, tmp_path: Path) -> None:
    desk.source("here", prefix="j/")
    desk.sources["there"] = JournalSource(tmp_path / "other", Items)
    (tmp_path / "other").mkdir()
    desk.write(A, line(1, 16, Flag.CONTINUE), ack(32, hints={B: 48}))
    assert hinted(desk) == {"here/j/b": 48}


def test_acks_of_flow_hint_as_ours_do(desk: Desk) -> None:
    """By what is lacking of the ack's own journal, with its own clock, and with hexadecimal ones."""
    desk.source(prefix="j/")
    clock = TODAY + 0x32
    assert f"{clock:016x}".isdigit() is False
    other = 0x1000000000000032
    flows = {
        "_meta": {"uuid": encode(Stamp(producer(1), clock, Flag.ACK))},
        "hints": [
            {"j": [1, "b"], "p": [{}, {"p": "AQAAAAAC", "c": f"{other:016x}"}]},
            {"j": [3, "elsewhere"], "p": [{}]},
        ],
        "is_ack": True,
    }
    desk.write(A, line(1, 16, Flag.CONTINUE), json.dumps(flows).encode() + b"\n")
    found, rows = desk.slice()
    assert [row["id"] for row in rows] == [1]
    assert {(j, m.producer, m.hinted_commit) for j, m in found.progress if m.hinted_commit} == {
        ("items/j/b", producer(1), clock),
        ("items/j/b", producer(2), other),
    }


def test_a_repeated_ack_hints_at_nothing_new(desk: Desk) -> None:
    desk.source()
    again = ack(32, hints={B: 48})
    desk.write(A, line(1, 16, Flag.CONTINUE), again)
    assert hinted(desk) == {"items/j/b": 48}
    desk.write(A, again, line(2, 64))
    assert hinted(desk) == {}


# producers that come and go

DAY = 86_400 * SECOND


def size_of(desk: Desk, journal: str = A) -> int:
    return len(json.dumps(desk.at(journal).to_state()))


def test_many_producers_are_not_remembered_for_ever(desk: Desk) -> None:
    """Each writes for an hour: as many are remembered after a year as after some days."""
    desk.source()
    sizes, ids = [], []
    for first in range(0, 2000, 100):
        written: list[bytes] = []
        for number in range(first, first + 100):
            at = number * DAY // 24 - 90 * DAY
            written += [line(2 * number, at, who=number), line(1, at + 16, Flag.CONTINUE, who=number)]
            written.append(ack(at + 32, who=number))
        desk.write(A, *written)
        ids += desk.ids()
        sizes.append(size_of(desk))
    assert len(ids) == 4000
    assert max(sizes[2:]) < 1.05 * min(sizes[2:])
    assert len(desk.at(A).producers) < 150
    assert JournalPosition.from_state(json.loads(json.dumps(desk.at(A).to_state()))) == desk.at(A)


def forgetful(desk: Desk, **options: Any) -> None:
    """100 producers that wrote a document each three days ago, and then others."""
    desk.source(**options)
    desk.write(A, *(line(n, n * 16 - 3 * DAY, who=n) for n in range(100)))
    desk.write(A, *(line(n, n * 16, who=1000 + n) for n in range(5)))
    assert len(desk.ids()) == 105
    assert desk.at(A).forgotten == TODAY + 99 * 16 - 3 * DAY
    assert len(desk.at(A).producers) == 5


@pytest.mark.parametrize("flag", [Flag.OUTSIDE, Flag.CONTINUE])
def test_what_may_be_a_late_repetition_is_refused(desk: Desk, flag: Flag) -> None:
    forgetful(desk)
    before = desk.at(A)
    desk.write(A, line(7, 7 * 16 - 3 * DAY, flag, who=7))
    with pytest.raises(ProducerForgotten, match="may have been read before"):
        desk.slice()
    assert desk.at(A) == before


def test_what_may_be_a_late_repetition_is_left_out_where_that_is_asked_for(desk: Desk) -> None:
    forgetful(desk, on_disorder="skip")
    desk.write(A, line(7, 7 * 16 - 3 * DAY, who=7), line(8, 96, who=7))
    assert desk.ids() == [8]
    assert desk.at(A).left_out == 1


def test_late_acks_of_forgotten_producers_do_no_harm(desk: Desk) -> None:
    """They commit nothing, and nobody waits for what they hint at."""
    forgetful(desk)
    desk.write(A, ack(7 * 16 - 3 * DAY, who=7, hints={B: 7 * 16 - 3 * DAY}), ack(-4 * DAY, who=5000))
    found, rows = desk.slice()
    assert rows == []
    assert [mark for _, mark in found.progress if mark.hinted_commit] == []
    assert len(desk.at(A).producers) == 5


def test_a_forgotten_producer_goes_on(desk: Desk) -> None:
    forgetful(desk)
    desk.write(A, line(200, 160, Flag.CONTINUE, who=7))
    found, _ = desk.slice()
    assert [mark.last_commit for _, mark in found.progress] == [0]
    desk.write(A, ack(-5 * DAY, who=7), line(201, 176, Flag.CONTINUE, who=7), ack(192, who=7))
    desk.write(A, line(202, 208, who=7), line(202, 208, who=7), ack(192, who=7))
    assert desk.ids() == [201, 202]
    assert desk.at(A).sequence(producer(7)).last_commit == TODAY + 208


def test_what_is_open_is_not_forgotten(desk: Desk) -> None:
    desk.source()
    desk.write(A, line(1, -5 * DAY, Flag.CONTINUE, who=500))
    desk.write(A, *(line(n, n * 16 - 3 * DAY, who=n) for n in range(100)))
    desk.write(A, line(2, 16, who=600))
    assert len(desk.ids()) == 101
    assert set(desk.at(A).producers) == {producer(500), producer(600)}
    desk.write(A, ack(16 - 5 * DAY, who=500, hints={B: 16 - 5 * DAY}))
    found, rows = desk.slice()
    assert [row["id"] for row in rows] == [1]
    assert found.progress.journals["items/j/a"][0].last_commit == TODAY + 16 - 5 * DAY


def test_few_producers_are_remembered_however_old_they_are(desk: Desk) -> None:
    desk.source()
    desk.write(A, *(line(n, n * 16 - 300 * DAY, who=n) for n in range(50)), line(50, 16, who=99))
    desk.write(A, line(7, 7 * 16 - 300 * DAY, who=7), line(51, 8 - 400 * DAY, who=100))
    assert len(desk.ids()) == 52
    assert len(desk.at(A).producers) == 52


def test_acks_that_hint_at_other_producers_tell_what_belongs_together(desk: Desk) -> None:
    desk.source()
    one, two = Hint("a", producer(1), TODAY + 12), Hint("b", producer(2), TODAY + 22)
    stamps = [Stamp(producer(1), TODAY + 12, Flag.ACK), Stamp(producer(2), TODAY + 22, Flag.ACK)]
    desk.write("a", line(1, 11, Flag.CONTINUE), encode_ack(stamps[0], [two]))
    desk.write("b", line(2, 21, Flag.CONTINUE, who=2), encode_ack(stamps[1], [one]), line(3, 30, who=3))
    desk.write("c", line(4, 31, Flag.CONTINUE, who=4), ack(32, who=4, hints={"d": 33}))
    slice_, _ = desk.slice()
    acks = [("items/a", producer(1), TODAY + 12), ("items/b", producer(2), TODAY + 22)]
    assert slice_.progress.joint == (tuple((*each, each[-1]) for each in acks),)

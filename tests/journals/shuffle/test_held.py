"""Transactions of which too much was read before to be handed on in one call."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import BadState
from penstock.journals.format.uuids import Flag
from penstock.journals.shuffle.slices import replays, slices
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.sources.base import PartName
from tests.journals.shuffle.desk import Desk, ack, line, producer

LIMIT = 2000
"""What one call may read, and read again."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(slices, "BLOCK", 500)
    monkeypatch.setattr(replays, "BLOCK", 500)
    monkeypatch.setattr(slices, "_PIECE", 500)
    desk = Desk(tmp_path)
    desk.source(key=["/id"])
    return desk


def documents(first: int, count: int, who: int = 1) -> list[bytes]:
    return [line(id_, id_, Flag.CONTINUE, who) for id_ in range(first, first + count)]


def calls(desk: Desk, most: int = LIMIT) -> list[list[int]]:
    """What each call handed on, up to the one that finds nothing more."""
    found = []
    while True:
        before = dict(desk.positions)
        found.append(desk.ids(most=most))
        # Whoever goes on knows what was stored, and nothing else.
        desk.positions = {
            read: JournalPosition.from_state(json.loads(json.dumps(at.to_state())))
            for read, at in desk.positions.items()
        }
        if desk.positions == before:
            return found
        assert len(found) < 500


def test_it_is_handed_on_as_a_whole_in_the_last_of_several_calls(desk: Desk) -> None:
    desk.write("j", *documents(1, 300), ack(300), line(301, 301))
    found = calls(desk)
    size = sum(map(len, documents(1, 300)))
    shown = [each for each in found if each]
    assert shown == [list(range(1, 302))]
    # It is read once up to the ack, and once again.
    assert 1.5 * size / LIMIT < len(found) < 2.5 * size / LIMIT


def test_the_journal_stands_at_the_ack_meanwhile(desk: Desk) -> None:
    written = documents(1, 300)
    desk.write("j", *written, ack(300), line(301, 301))
    while not (desk.positions and desk.at("j").held):
        assert desk.ids(most=LIMIT) == []
    at = desk.at("j")
    assert at.offset == sum(map(len, written))
    assert desk.ids(most=LIMIT) == []
    assert desk.at("j").offset == at.offset
    before, after = at.held[producer(1)], desk.at("j").held[producer(1)]
    assert before.at + LIMIT <= after.at + 200 and len(after.files) == len(before.files) + 1
    assert desk.slice(most=LIMIT)[0].unasked == {PartName("items", "j")}


def test_what_is_held_is_done_once(desk: Desk) -> None:
    """A call that is lost is done again; what was held before it stays."""
    desk.write("j", *documents(1, 300), ack(300))
    found: list[int] = []
    for _ in range(100):
        before = dict(desk.positions)
        desk.ids(most=LIMIT)
        desk.positions = before
        found += desk.ids(most=LIMIT)
    assert found == list(range(1, 301))
    assert not desk.at("j").held


def test_other_journals_go_on(desk: Desk) -> None:
    desk.write("j", *documents(1, 300), ack(300))
    while not (desk.positions and desk.at("j").held):
        desk.ids(most=LIMIT)
    desk.write("k", line(1000, 1000))
    desk.write("k", *documents(1001, 3), ack(1003))
    assert desk.ids(most=LIMIT) == [1000, 1001, 1002, 1003]
    assert desk.at("j").held


def test_small_and_large_ones_of_one_journal(desk: Desk) -> None:
    small, large = documents(1, 2, who=1), documents(3, 200, who=2)
    desk.write("j", small[0], *large[:100], small[1], *large[100:], ack(202, 1), ack(202, 2), line(300, 300))
    assert [each for each in calls(desk) if each] == [[1, 2], [*range(3, 203), 300]]


def test_two_large_ones_in_two_journals(desk: Desk) -> None:
    desk.write("j", *documents(1, 200, who=1), ack(200, 1))
    desk.write("k", *documents(201, 200, who=2), ack(400, 2))
    shown = [each for each in calls(desk) if each]
    assert sorted(id_ for each in shown for id_ in each) == list(range(1, 401))
    # Each of them becomes visible as a whole, be it alone or together with the other.
    assert all(each[0] in (1, 201) and each[-1] in (200, 400) for each in shown)


def test_one_that_is_rolled_back_is_not_held(desk: Desk) -> None:
    desk.write("j", line(1, 1), *documents(2, 200), ack(1), line(500, 500))
    assert [each for each in calls(desk) if each] == [[1], [500]]


def test_a_gap_drops_what_is_held(desk: Desk) -> None:
    desk.sources.clear()
    desk.source(key=["/id"], on_gap="skip")
    written = [*documents(1, 300), ack(300)]
    desk.write("j", *written)
    while not (desk.positions and desk.at("j").held):
        desk.ids(most=LIMIT)
    for path in (desk.log.root / "j").iterdir():
        path.unlink()
    desk.log.heads["j"] = sum(map(len, written)) + 100
    desk.write("j", line(700, 700))
    assert desk.ids(most=LIMIT) == [700]
    assert not desk.at("j").held and desk.at("j").lost == 100 + len(written[-1])


def test_states_of_it_are_checked(desk: Desk) -> None:
    desk.write("j", *documents(1, 300), ack(300))
    while not (desk.positions and desk.at("j").held):
        desk.ids(most=LIMIT)
    at = desk.at("j")
    state = json.loads(json.dumps(at.to_state()))
    assert JournalPosition.from_state(state) == at
    assert "held" not in replace(at, held={}).to_state()
    entry = state["held"][f"{producer(1):012x}"]
    for wrong in ({"held": 3}, {"held": {"x": entry}}, {"held": {f"{producer(1):012x}": entry[:2]}}):
        with pytest.raises(BadState):
            JournalPosition.from_state(state | wrong)


def test_many_that_do_not_fit_wait_without_a_file_for_each(desk: Desk) -> None:
    count = 60
    for number in range(count):
        desk.write(f"j{number:02}", *documents(10 * number + 1, 8, who=number + 1))
    assert desk.ids(most=1 << 20) == []
    for number in range(count):
        desk.write(f"j{number:02}", ack(10 * number + 8, who=number + 1))
    shown = []
    for _ in range(40):
        slice_, rows = desk.slice(most=LIMIT)
        assert not any(at.held for at in desk.positions.values())
        assert len(slice_.files) <= 1
        shown += [row["id"] for row in rows]
    assert sorted(shown) == [10 * number + n for number in range(count) for n in range(1, 9)]


def test_bytes_that_are_gone_up_to_the_ack_do_not_hold_it_up_for_ever(desk: Desk) -> None:
    desk.sources.clear()
    desk.source(key=["/id"], on_gap="skip")
    written = documents(1, 300)
    desk.write("j", *written)
    while desk.ids(most=LIMIT) == [] and desk.at("j").offset < sum(map(len, written)):
        pass
    for path in (desk.log.root / "j").iterdir():
        path.unlink()
    desk.write("j", ack(300), line(301, 301))
    found = calls(desk)
    assert [each for each in found if each] == [[301]] and len(found) < 6
    assert desk.at("j").lost == sum(map(len, written)) and not desk.at("j").held


@pytest.mark.parametrize("after", [0, 1], ids=["all of it was read", "some of it comes with the ack"])
def test_of_a_transaction_whose_begin_is_gone_nothing_is_shown(desk: Desk, after: int) -> None:
    desk.sources.clear()
    desk.source(key=["/id"], on_gap="skip")
    desk.write("j", *documents(1, 1))
    before = set((desk.log.root / "j").iterdir())
    desk.write("j", *documents(2, 1))
    assert desk.ids() == []
    for path in before:
        path.unlink()
    desk.write("j", *documents(3, after), ack(3), line(4, 4), line(5, 5, Flag.CONTINUE), ack(6))
    assert desk.ids() == [4, 5]
    assert desk.at("j").lost == len(documents(1, 1)[0]) and desk.at("j").left_out == 1

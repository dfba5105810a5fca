"""Parts that stay open between epochs: handed out only at the state they were suspended at."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from penstock.sources import hosting
from penstock.sources.base import Part
from penstock.sources.hosting import Host, Key, close


class Opened(Part):
    def __init__(self, stubborn: bool = False) -> None:
        self.closed = 0
        self._stubborn = stubborn

    def poll(self, limit: int) -> None:
        return None

    def snapshot(self) -> None:
        return None

    def close(self) -> None:
        self.closed += 1
        if self._stubborn:
            raise OSError("the server does not answer")


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(hosting, "time", SimpleNamespace(monotonic=lambda: self.now))


def key(part: str) -> Key:
    return "0001", "clicks", part


def test_a_part_goes_on_from_the_state_it_was_suspended_at() -> None:
    host, part = Host[Opened](), Opened()
    host.keep(key("a"), "1:5", part)
    assert host.take(key("a"), "1:5") is part
    assert part.closed == 0


def test_a_part_is_handed_out_once() -> None:
    host = Host[Opened]()
    host.keep(key("a"), "1:5", Opened())
    host.take(key("a"), "1:5")
    assert host.take(key("a"), "1:5") is None


@pytest.mark.parametrize("state", ["1:4", "1:6", None])
def test_a_part_at_another_state_is_closed(state: str | None) -> None:
    host, part = Host[Opened](), Opened()
    host.keep(key("a"), "1:5", part)
    assert host.take(key("a"), state) is None
    assert part.closed == 1
    assert host.take(key("a"), "1:5") is None


@pytest.mark.parametrize("other", [("0002", "clicks", "a"), ("0001", "views", "a"), ("0001", "clicks", "b")])
def test_parts_of_other_streams_and_sources_are_others(other: Key) -> None:
    host, part = Host[Opened](), Opened()
    host.keep(key("a"), "1:5", part)
    assert host.take(other, "1:5") is None
    assert host.take(key("a"), "1:5") is part


def test_a_part_that_is_kept_again_replaces_the_one_before() -> None:
    host, old, new = Host[Opened](), Opened(), Opened()
    host.keep(key("a"), "1:5", old)
    host.keep(key("a"), "1:6", new)
    assert (old.closed, new.closed) == (1, 0)
    assert host.take(key("a"), "1:6") is new


def test_the_oldest_go_when_there_are_too_many() -> None:
    host, parts = Host[Opened](most=2), [Opened() for _ in range(4)]
    for number, part in enumerate(parts):
        host.keep(key(str(number)), "1:0", part)
    assert [part.closed for part in parts] == [1, 1, 0, 0]


def test_a_part_that_nobody_asks_for_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, host, old, new = Clock(monkeypatch), Host[Opened](idle=60.0), Opened(), Opened()
    host.keep(key("old"), "1:0", old)
    clock.now += 59.0
    host.sweep()
    host.keep(key("new"), "1:0", new)
    assert old.closed == 0
    clock.now += 2.0
    host.sweep()
    assert (old.closed, new.closed) == (1, 0)


def test_a_part_that_is_used_again_counts_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, host, part = Clock(monkeypatch), Host[Opened](idle=60.0), Opened()
    host.keep(key("a"), "1:0", part)
    host.keep(key("b"), "1:0", Opened())
    clock.now += 50.0
    assert host.take(key("a"), "1:0") is part
    host.keep(key("a"), "1:1", part)
    clock.now += 50.0
    host.sweep()
    assert host.take(key("a"), "1:1") is part
    assert host.take(key("b"), "1:0") is None


def test_a_part_that_cannot_be_closed_is_reported_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    host, part = Host[Opened](most=1), Opened(stubborn=True)
    host.keep(key("a"), "1:0", part)
    with caplog.at_level(logging.WARNING):
        host.keep(key("b"), "1:0", Opened())
    assert part.closed == 1
    assert "part a of clicks was not closed cleanly" in caplog.text
    close(part, key("a"))
    assert part.closed == 2


def test_parts_of_a_large_share_that_are_asked_in_turn_are_all_kept() -> None:
    host, count = Host[Opened](), 2 * hosting.LEAST
    host.make_room(count)
    for number in range(count):
        host.keep(key(str(number)), "1:0", Opened())
    assert all(host.take(key(str(number)), "1:0") is not None for number in range(count))


def test_there_is_an_end_to_the_room_for_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "MOST", 3)
    host, parts = Host[Opened](most=1), [Opened() for _ in range(5)]
    host.make_room(1000)
    for number, part in enumerate(parts):
        host.keep(key(str(number)), "1:0", part)
    assert [part.closed for part in parts] == [1, 1, 0, 0, 0]


def test_a_small_share_takes_no_room_away() -> None:
    host, parts = Host[Opened](most=8), [Opened() for _ in range(8)]
    host.make_room(1)
    for number, part in enumerate(parts):
        host.keep(key(str(number)), "1:0", part)
    assert not any(part.closed for part in parts)

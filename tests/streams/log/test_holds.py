"""Readers' positions and holds."""

from __future__ import annotations

import threading

import pytest

from penstock.errors import EpochGone, SessionLost, UsageError
from penstock.store.memory import MemoryStore
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.log.readers import ReaderPositions
from tests.control.cluster.support import Clock, until
from tests.streams.log.support import Made


@pytest.fixture
def holds(made: Made) -> ReaderPositions:
    for _ in range(5):
        made.commit(1)
    made.log.compact(force=True)
    return ReaderPositions(made.log)


def positions(holds: ReaderPositions) -> dict[str, int]:
    return {position.reader: position.epoch for position in holds.list()}


def test_positions_go_forward(holds: ReaderPositions) -> None:
    holds.begin("copy", 2)
    holds.advance("copy", 1)
    holds.begin("other", 0)
    holds.advance("copy", 4)
    assert positions(holds) == {"copy": 4, "other": 0}
    assert holds.positions() == {4, 0}


def test_positions_outlast_the_process(made: Made, holds: ReaderPositions) -> None:
    holds.begin("copy", 2)
    other = ReaderPositions(EpochLog(made.store, made.storage, made.layout))
    assert positions(other) == {"copy": 2}
    other.advance("copy", 3)
    holds.advance("copy", 4)
    ReaderPositions(made.log).advance("copy", 1)
    assert positions(holds) == {"copy": 4}
    other.drop("copy")
    holds.advance("copy", 5)
    assert positions(holds) == {}, "one who was dropped comes back only when it begins"
    holds.begin("copy", 5)
    assert positions(holds) == {"copy": 5}


def test_who_had_an_output_before_cannot_set_it_back(made: Made, holds: ReaderPositions) -> None:
    holds.begin("copy", 1)
    newer = ReaderPositions(EpochLog(made.store, made.storage, made.layout))
    newer.begin("copy", 2)
    newer.advance("copy", 4)
    holds.begin("copy", 1)
    holds.advance("copy", 3)
    assert holds.begin_at_floor("copy") == 4
    assert positions(holds) == {"copy": 4}
    assert holds.begin_at_floor("fresh") == 0


def test_a_reader_is_forgotten(holds: ReaderPositions) -> None:
    holds.begin("copy", 4)
    assert holds.drop("copy")
    assert not holds.drop("copy")
    assert holds.positions() == frozenset()
    holds.begin("copy", 4)
    assert positions(holds) == {"copy": 4}


def test_a_reader_begins_at_its_position(made: Made, holds: ReaderPositions) -> None:
    assert holds.enter("early") == 0
    holds.advance("early", 3)
    made.log.raise_floor(lambda view: 3)
    assert holds.enter("early") == 3
    with pytest.raises(EpochGone, match="reader late has no position, and what was before epoch 3 is gone"):
        holds.enter("late")
    assert positions(holds) == {"early": 3}
    assert holds.enter("late", from_oldest=True) == 2
    assert holds.enter("late") == 2


def test_positions_are_reserved_for_outputs(made: Made, holds: ReaderPositions) -> None:
    holds.begin("mine.a", 2)
    holds.reserve({"sums.a": "sums", "sums.a.late": "sums", "copy.a": "copy"})
    assert positions(holds) == {"mine.a": 2, "sums.a": 0, "sums.a.late": 0, "copy.a": 0}
    holds.advance("sums.a", 5)
    holds.reserve({"sums.a": "sums", "sums.a.late": "sums", "copy.a": "copy"})
    assert positions(holds) == {"mine.a": 2, "sums.a": 5, "sums.a.late": 0, "copy.a": 0}
    made.log.raise_floor(lambda view: 3)
    holds.reserve({"sums.a": "sums", "new.a": "new"})
    assert positions(holds) == {"mine.a": 2, "sums.a": 5, "new.a": 2}
    assert {each.reader: each.output for each in holds.list()} == {
        "mine.a": None,
        "sums.a": "sums",
        "new.a": "new",
    }


def test_an_output_and_a_person_do_not_share_a_position(holds: ReaderPositions) -> None:
    holds.begin("mine.a", 2)
    with pytest.raises(UsageError, match=r"reader mine.a was named by somebody"):
        holds.reserve({"mine.a": "mine"})
    holds.reserve({"sums.a": "sums"})
    for use in (holds.enter, lambda name: holds.begin(name, 4)):
        with pytest.raises(UsageError, match=r"reader sums.a belongs to output sums"):
            use("sums.a")
    assert positions(holds) == {"mine.a": 2, "sums.a": 0}


def test_who_begins_below_the_floor_is_told(made: Made, holds: ReaderPositions) -> None:
    made.log.raise_floor(lambda view: 4)
    with pytest.raises(EpochGone, match="epoch 3 is not retained"):
        holds.begin("copy", 2)
    assert holds.list() == []
    assert holds.begin_at_floor("fresh") == 3


def test_who_begins_while_it_goes_does_not_keep_the_rest(
    made: Made, holds: ReaderPositions, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = holds._publish

    def too_late() -> None:
        made.log.raise_floor(lambda view: 4)
        publish()

    monkeypatch.setattr(holds, "_publish", too_late)
    with pytest.raises(EpochGone):
        holds.begin("copy", 0)
    assert holds.positions() == frozenset()


def test_who_begins_too_late_leaves_what_another_wrote_meanwhile(
    made: Made, holds: ReaderPositions, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = holds._publish

    def meanwhile() -> None:
        made.log.raise_floor(lambda view: 4)
        ReaderPositions(EpochLog(made.store, made.storage, made.layout)).advance("copy", 4)
        publish()

    monkeypatch.setattr(holds, "_publish", meanwhile)
    with pytest.raises(EpochGone):
        holds.begin("copy", 0)
    assert positions(holds) == {"copy": 4}


def test_names_of_readers(holds: ReaderPositions) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a reader"):
        holds.advance("a/b", 1)


def test_a_hold_lasts_as_long_as_its_block(made: Made, holds: ReaderPositions) -> None:
    made.log.raise_floor(lambda view: 3)
    with holds.hold("a test") as view:
        assert view.floor == 3
        assert [(p.reader, p.epoch) for p in holds.held()] == [("a test", 2)]
        assert holds.list() == []
    assert list(made.store.scan(made.layout.holds)) == []


def test_a_hold_is_kept_alive(holds: ReaderPositions) -> None:
    with holds.hold("a test", ttl=0.3):
        deadline = iter(range(1000))
        until(lambda: next(deadline) > 60 and list(holds.held()), "it outlives its ttl", 20)


def test_the_hold_of_a_dead_process_goes(made: Made, tmp_path_factory: pytest.TempPathFactory) -> None:
    clock = Clock()
    other = Made(MemoryStore(clock), tmp_path_factory.mktemp("storage"))
    holds = ReaderPositions(other.log)
    holds.hold_for(other.store.session(30), "a test")
    assert holds.unheld(7) == 1
    clock.move(31)
    assert holds.unheld(7) == 7
    assert list(other.store.scan(other.layout.holds)) == []


def test_a_hold_that_was_lost_is_an_error(made: Made) -> None:
    holds = ReaderPositions(made.log)

    def lose() -> None:
        with holds.hold("a test", ttl=0.2):
            (held,) = holds.held()
            made.store.end_session(held.session)  # type: ignore[attr-defined]
            until(lambda: "penstock-hold" not in {t.name for t in threading.enumerate()}, "it was noticed")

    with pytest.raises(SessionLost, match="lost while they were read"):
        lose()

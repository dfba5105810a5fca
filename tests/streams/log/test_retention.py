"""What is let go, what never is, and what a keeper that dies leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import EpochGone
from penstock.store.memory import MemoryStore
from penstock.streams.ingest.finished_parts import STATES, StatesFile
from penstock.streams.ingest.part_lists import ANNOUNCED, Announced
from penstock.streams.layout import GROUP, epoch_of
from penstock.streams.log import retention, sweeping
from penstock.streams.log.epoch_log import EpochLog, LogView
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.log.retention import MARGIN, LogRetention, retain
from penstock.streams.model import Brought, Epoch, Pointer, Standing
from tests.control.cluster.support import Clock
from tests.streams.log.support import NOON, Made, numbers

HOUR = 3600.0
PLENTY = 1 << 40
NOW = NOON.timestamp()


def epoch(number: int, *, size: int = 10, hours: float = 0, ended: bool = False) -> Epoch:
    at = (NOON - timedelta(hours=hours)).isoformat().replace("+00:00", "Z")
    return Epoch(number, (Brought("ann", Pointer("p", "s"), 1, size),), ended, at)


EPOCHS = [epoch(2, hours=5), epoch(4, hours=4), epoch(5, hours=3), epoch(9, hours=1)]


@pytest.mark.parametrize(
    ("age", "size", "positions", "floor"),
    [
        (24, PLENTY, (), None),
        (4.5, PLENTY, (), 3),
        (2, PLENTY, (), 6),
        (0, PLENTY, (), 10),
        (24, 40, (), None),
        (24, 39, (), 3),
        (24, 15, (), 6),
        (24, 0, (), 10),
        (0, PLENTY, (4, 9), 5),
        (0, 0, (1,), None),
        (0, 0, (2, 7), 3),
        (0, 0, (9,), 10),
    ],
)
def test_the_rule(age: float, size: int, positions: tuple[int, ...], floor: int | None) -> None:
    limits = {"now": NOW, "age": age * HOUR, "positions": positions}
    assert retain(EPOCHS, 40, size=size, **limits) == floor  # type: ignore[arg-type]


def test_the_end_is_never_let_go() -> None:
    epochs = [*EPOCHS, epoch(10, size=0, hours=1, ended=True)]
    assert retain(epochs, 40, now=NOW, age=0, size=0, positions=()) == 10


def test_only_as_much_is_read_as_is_let_go() -> None:
    asked = []

    def lazily() -> object:
        for each in EPOCHS:
            asked.append(each.number)
            yield each

    assert retain(lazily(), 40, now=NOW, age=4.5 * HOUR, size=PLENTY, positions=()) == 3  # type: ignore[arg-type]
    assert asked == [2, 4]


def keeper(made: Made, *, age: float = HOUR, size: int = PLENTY, hours: float = 0) -> LogRetention:
    log = EpochLog(made.store, made.storage, made.layout)
    return LogRetention(log, age=age, size=size, clock=lambda: NOW + hours * HOUR)


def rows(made: Made) -> set[int]:
    return {number for number in map(epoch_of, made.files(made.layout.rows)) if number}


def portions(made: Made) -> set[int]:
    return {number for number in map(epoch_of, made.files(made.layout.portions)) if number}


def test_nothing_goes_while_it_is_young_and_there_is_room(made: Made) -> None:
    for _ in range(5):
        made.commit(1)
    assert keeper(made).tidy().floor == 1
    assert rows(made) == portions(made) == {1, 2, 3, 4, 5}


def test_old_epochs_go_with_their_files(made: Made) -> None:
    for hour in range(5):
        made.commit(1, at=NOON + timedelta(hours=hour))
        made.commit(at=NOON + timedelta(hours=hour))
    assert keeper(made, age=2.5 * HOUR, hours=4).tidy().floor == 4
    assert rows(made) == portions(made) == {5, 7, 9}
    assert numbers(made.log.entries(3)) == [5, 7, 9]


def test_what_is_too_much_goes(made: Made) -> None:
    for _ in range(6):
        made.commit(10)
    one = made.log.entries(5)[0].bytes
    assert keeper(made, size=2 * one + 1).tidy().floor == 5
    assert rows(made) == {5, 6}
    assert made.log.size() <= 2 * one + 1


def test_what_a_reader_needs_stays(made: Made) -> None:
    for _ in range(6):
        made.commit(1)
    holds = ReaderPositions(made.log)
    holds.begin("copy", 3)
    holds.begin("far", 5)
    assert keeper(made, hours=2).tidy().floor == 4
    assert rows(made) == {4, 5, 6}
    holds.advance("copy", 5)
    assert keeper(made, hours=2).tidy().floor == 6
    holds.drop("copy")
    holds.drop("far")
    assert keeper(made, hours=2).tidy().floor == 7
    assert rows(made) == set()


def test_what_a_batch_read_holds_stays(made: Made) -> None:
    for _ in range(4):
        made.commit(1)
    with ReaderPositions(made.log).hold("a test"):
        assert keeper(made, hours=2).tidy().floor == 5, "the log goes on"
        assert rows(made) == portions(made) == {1, 2, 3, 4}
        for _ in range(MARGIN + GROUP):
            made.bare()
        keeper(made, hours=2).tidy()
        assert rows(made) == portions(made) == {1, 2, 3, 4}, "the sweeper leaves them, too"
    keeper(made, hours=2).tidy()
    assert rows(made) == portions(made) == set()


def test_readers_that_overlap_for_ever_do_not_keep_everything(tmp_path: Path) -> None:
    """A dashboard reads every minute, and what it read is held for ten."""
    clock = Clock()
    made = Made(MemoryStore(clock), tmp_path / "storage")
    keeping = LogRetention(made.log, age=120.0, size=PLENTY, clock=lambda: NOW + clock())
    began = clock()
    for minute in range(60):
        number = made.commit(1, at=NOON + timedelta(seconds=clock()))
        view = ReaderPositions(made.log).hold_for(made.store.session(600), "a dashboard")
        assert set(range(view.floor, number + 1)) <= rows(made)
        keeping.tidy()
        assert made.log.floor >= number - 3
        assert len(rows(made)) <= 15, minute
        clock.move(60)
    assert clock() == began + 3600


def test_a_hold_that_begins_while_files_are_deleted(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper has read the holds already: whoever comes now sees only what stays."""
    for number in range(1, 5):
        made.commit(1, at=NOON + timedelta(hours=number))
    keeping, views = keeper(made, hours=3.5), []
    unheld = keeping._readers.unheld

    def then_somebody_comes(floor: int) -> int:
        found = unheld(floor)
        views.append(ReaderPositions(made.log).hold_for(made.store.session(30), "a test"))
        return found

    monkeypatch.setattr(keeping._readers, "unheld", then_somebody_comes)
    keeping.tidy()
    assert [view.floor for view in views] == [3]
    assert rows(made) == {3, 4}


def test_a_reader_that_begins_while_retention_is_under_way_is_heeded(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention has read the positions already, and not moved the floor yet."""
    for _ in range(4):
        made.commit(1)
    made.log.compact(force=True)
    late = ReaderPositions(EpochLog(made.store, made.storage, made.layout))
    begun: list[str] = []
    keeping = keeper(made, hours=2)
    read = keeping._readers.positions

    def then_somebody_comes() -> frozenset[int]:
        found = read()
        if not begun:
            begun.append("copy")
            late.begin("copy", 0)
        return found

    monkeypatch.setattr(keeping._readers, "positions", then_somebody_comes)
    assert keeping.tidy().floor == 1
    assert rows(made) == {1, 2, 3, 4}


@pytest.mark.parametrize("where", ["retention.floor", "retention.deleting", "retention.cleared"])
def test_who_dies_after_the_floor_leaves_files_for_the_next(
    made: Made, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 5):
        made.commit(2, at=NOON + timedelta(hours=number))
    with monkeypatch.context() as dying:
        for module in (retention, sweeping):
            dying.setattr(module, "reach", _dies_at(where))
        with pytest.raises(KeyboardInterrupt):
            keeper(made, hours=3.5).tidy()
    assert made.log.floor == 3
    assert numbers(made.log.entries(2)) == [3, 4]
    assert {3, 4} <= rows(made)
    with pytest.raises(EpochGone):
        made.log.entries(0)
    assert keeper(made, hours=3.5).tidy().floor == 3
    assert rows(made) == portions(made) == {3, 4}


def _dies_at(where: str) -> Callable[[str], None]:
    def reach(name: str) -> None:
        if name == where:
            raise KeyboardInterrupt(name)

    return reach


def test_two_keepers_at_once_do_no_harm(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 6):
        made.commit(1, at=NOON + timedelta(hours=number))
    other = keeper(made, hours=4.5)
    reached: list[str] = []

    def meanwhile(name: str) -> None:
        if not reached:
            reached.append(name)
            other.tidy()

    monkeypatch.setattr(retention, "reach", meanwhile)
    assert keeper(made, hours=3.5).tidy().floor == 4
    assert rows(made) == portions(made) == {4, 5}


def test_many_groups_are_cleared_as_a_whole(made: Made) -> None:
    for _ in range(2 * GROUP + 10):
        made.bare(1, size=1)
    for number in (1, GROUP, 2 * GROUP - 1, 2 * GROUP, 2 * GROUP + 9, 2 * GROUP + 10):
        made.bring(number, 1, 0)
    made.log.compact(force=True)
    ReaderPositions(made.log).begin("copy", 2 * GROUP + 8)
    assert keeper(made, hours=2).tidy().floor == 2 * GROUP + 9
    assert rows(made) == portions(made) == {2 * GROUP + 9, 2 * GROUP + 10}


# what belongs to nothing


def test_what_aborted_epochs_and_lost_attempts_left_is_swept(made: Made) -> None:
    made.commit(2)
    made.abort(3)
    kept = made.commit(2)
    stray = made.file(kept, "numbers", 7).record.path
    made.storage.write(f"{made.layout.epoch_rows(kept)}/.torn.tmp", b"half")
    made.storage.write(made.layout.portion(kept, "ben", "2"), b"{}")
    for _ in range(GROUP + MARGIN):
        made.bare()
    newest = made.abort(3)
    still_open = made.open().epoch
    made.bring(still_open, 3, 0)
    assert rows(made) == {1, 2, 3, newest, still_open}
    # The rows and the portion of the aborted one, the stray rows, the torn file and the stray portion.
    assert keeper(made).tidy().swept == 5
    assert rows(made) == {1, 3, newest, still_open}
    assert portions(made) == {1, 3, newest, still_open}
    assert stray not in made.files(made.layout.rows)
    assert len(made.files(made.layout.epoch_rows(3))) == 1
    assert keeper(made).tidy().swept == 0


def test_states_that_a_decision_refers_to_stay_however_old(made: Made) -> None:
    def states(number: int) -> Pointer:
        path = made.layout.states_file(number, "ann", "1")
        return Pointer.write(made.storage, path, STATES, StatesFile({}))

    def listing(number: int) -> Pointer:
        return Pointer.write(made.storage, made.layout.listing(number, "ann", "1"), ANNOUNCED, Announced({}))

    old = Standing(states(1), listing(1))
    made.commit(1, standing=old)
    replaced = Standing(states(2), listing(2))
    made.commit(1, standing=replaced)
    made.storage.write(made.layout.states_file(3, "ben", "2"), b"{}")
    made.abort()
    for _ in range(MARGIN + 20):
        made.commit(standing=old)
    fresh = states(made.open().epoch)
    unfinished = states(made.log.committed() - 3)
    keeping = keeper(made)
    made.log.compact(force=True)
    keeping.tidy()
    assert made.files(made.layout.states) == {
        old.states.path,  # type: ignore[union-attr]
        replaced.states.path,  # type: ignore[union-attr]
        fresh.path,
        unfinished.path,
    }
    made.prune(10)
    keeper(made).tidy()
    assert made.files(made.layout.states) == {old.states.path, fresh.path, unfinished.path}  # type: ignore[union-attr]
    assert made.files(made.layout.listings) == {old.listing.path}  # type: ignore[union-attr]


def test_rows_of_a_job_beside_the_epochs_stay_while_it_is_under_way(made: Made) -> None:
    def path(number: int) -> str:
        return f"{made.layout.polled}/{number:016}-ann-1-0-0-numbers.arrow"

    for _ in range(MARGIN + 20):
        made.commit(standing=Standing(beside=2))
    newest = made.log.committed()
    for number in (1, 2, newest):
        made.storage.write(path(number), b"rows")
    keeper(made).tidy()
    assert made.files(made.layout.polled) == {path(2), path(newest)}
    made.commit(standing=Standing())
    keeper(made).tidy()
    assert made.files(made.layout.polled) == {path(newest)}


def test_merged_segments_are_deleted_unless_somebody_reads_them(made: Made) -> None:
    for _ in range(8):
        made.bare(1)
        made.log.compact(force=True)
    assert len(made.files(made.layout.log)) == 8
    for _ in range(MARGIN):
        made.bare(1)
    keeping = keeper(made)
    with ReaderPositions(made.log).hold("a test"):
        keeping.tidy()
        assert len(made.files(made.layout.log)) == 9
        # Who comes later does not need them.
        ReaderPositions(made.log).hold_for(made.store.session(600), "another")
    keeping._swept_at = 0
    keeping.tidy()
    named = {segment.pointer.path for segment in made.log.view().document.segments}
    assert made.files(made.layout.log) == named
    assert numbers(EpochLog(made.store, made.storage, made.layout).entries(0)) == list(range(1, 9 + MARGIN))


def test_a_segment_that_is_about_to_be_named_is_not_lost(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper lists it before its writer names it."""
    from penstock.streams.log import epoch_log as log_module

    for _ in range(MARGIN + 3):
        made.bare(1)
    other = keeper(made)
    reached: list[str] = []

    def meanwhile(name: str) -> None:
        if not reached:
            reached.append(name)
            other._sweeper.segments()

    monkeypatch.setattr(log_module, "reach", meanwhile)
    assert made.log.compact()
    assert reached
    fresh = EpochLog(made.store, made.storage, made.layout)
    assert numbers(fresh.entries(0)) == list(range(1, MARGIN + 4))


def test_a_round_with_nothing_to_do_is_cheap(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(MARGIN + 10):
        made.bare(1)
    keeping = keeper(made)
    keeping.tidy()
    listed: list[str] = []
    monkeypatch.setattr(type(made.storage), "list", lambda self, prefix="": listed.append(prefix))
    keeping.tidy()
    assert listed == []


def test_a_view_of_the_log_says_how_large_it_is(made: Made, tmp_path: Path) -> None:
    for _ in range(3):
        made.commit(3)
    view: LogView = made.log.view()
    assert view.size == sum(path.stat().st_size for path in (tmp_path / "storage").rglob("*.arrow"))

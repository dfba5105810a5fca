"""Journals that are gone are forgotten: not early, not while they are needed, and nothing comes twice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from penstock.control.cluster.rules.model import Outcome
from penstock.errors import DefinitionError, HintNotReached
from penstock.journals import Ack, Flag, Journals, JournalWriter
from penstock.sources import JournalSource
from penstock.sources.base import PartName
from penstock.streams.api.stream import SourceSpec
from penstock.streams.ingest.absent_journals import Absences
from penstock.streams.ingest.finished_parts import read_states
from penstock.streams.ingest.journal_states import position_of
from penstock.streams.ingest.part_listing import Begun, Listing
from penstock.streams.model import Standing
from penstock.types.tables import Table
from tests.journals.shuffle.desk import Desk, ack, line
from tests.streams.journal_crew import JournalCrew
from tests.streams.support import Clock

A, B, C = "s/a/pivot=00", "s/b/pivot=00", "s/c/pivot=00"
DAY = 86_400.0
LOOK = 600.0


class Items(Table):
    id: int


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "journals").mkdir()
    return tmp_path / "journals"


def over(root: Path, **options: object) -> JournalSource:
    return JournalSource(root, Items, key=["/id"], **{"forget_after": DAY, **options})  # type: ignore[arg-type]


def write(root: Path, ids: range, journal: str) -> None:
    with JournalWriter(root, sync=False) as writer:
        writer.append(journal, [{"id": number} for number in ids])


def remove(root: Path, journal: str, to: Path | None = None) -> None:
    """Delete a journal, or move it away."""
    if to is None:
        shutil.rmtree(root / journal)
    else:
        shutil.move(root / journal, to)


def live(crew: JournalCrew, seconds: float) -> None:
    """Let so much time pass, with a listing in each epoch."""
    for _ in range(int(seconds // LOOK)):
        crew.clock.now += LOOK
        crew.epoch()


def known(crew: JournalCrew) -> set[str]:
    """The journals that have a state."""
    found = [read_states(crew.storage, each.states) for each in crew.standings() if each.states]
    return {name.part for states in found for name in states}


def floor(crew: JournalCrew) -> int:
    return max(each.floors.get("all", 0) for each in crew.standings())


@pytest.fixture
def crew(root: Path, tmp_path: Path) -> JournalCrew:
    """Two members that have read three journals, of which one is gone since."""
    crew = JournalCrew(tmp_path / "work", "ann", "bob", all=over(root))
    for number, journal in enumerate((A, B, C)):
        write(root, range(10 * number, 10 * number + 10), journal)
    crew.epochs(5)
    assert crew.ids() == list(range(30))
    remove(root, B, tmp_path / "away")
    return crew


# when


def test_a_journal_that_is_gone_for_so_long_is_forgotten(crew: JournalCrew) -> None:
    live(crew, DAY - LOOK)
    assert known(crew) == {A, B, C}
    live(crew, 6 * LOOK)
    assert known(crew) == {A, C}
    assert floor(crew) > 0
    assert all(B not in {name.part for name in worker.names} for worker in crew.workers.values())


def test_all_that_is_remembered_stays_as_small_however_many_come_and_go(root: Path, tmp_path: Path) -> None:
    crew = JournalCrew(tmp_path / "work", "ann", all=over(root))
    write(root, range(100, 101), C)
    sizes = []
    for number in range(8):
        journal = f"s/day={number}/pivot=00"
        write(root, range(number, number + 1), journal)
        crew.epochs(4)
        remove(root, journal)
        live(crew, DAY / 2)
        [standing] = crew.standings()
        states = len(crew.storage.read(standing.states.path)) if standing.states else 0
        sizes.append(len(standing.encode()) + states)
    assert crew.ids() == [*range(8), 100]
    live(crew, 2 * DAY)
    assert (known(crew), {name.part for name in crew.workers["ann"].names}) == ({C}, {C})
    assert max(sizes[4:]) < 1.1 * max(sizes[:4])


def test_a_place_that_is_away_forgets_nothing(root: Path, tmp_path: Path, crew: JournalCrew) -> None:
    """A mount that is missing for a week looks like a folder without journals."""
    for journal in (A, C):
        remove(root, journal, tmp_path / "mount" / journal)
    live(crew, 2 * DAY)
    assert known(crew) == {A, B, C}
    for journal in (A, C):
        remove(tmp_path / "mount", journal, root / journal)
    write(root, range(30, 33), A)
    crew.epochs(5)
    assert crew.ids() == list(range(33))


def test_time_in_which_nobody_looked_does_not_count(crew: JournalCrew) -> None:
    live(crew, DAY / 2)
    # A process that was stopped for a month, and another that begins with a clock of its own.
    crew.clock.now += 30 * DAY
    crew.epochs(3)
    for member in list(crew.workers):
        crew.die(member)
    crew.clock.now = 5.0
    crew.seat("cid")
    crew.epochs(3)
    live(crew, DAY / 3)
    assert B in known(crew)
    live(crew, DAY / 6 + 5 * LOOK)
    assert B not in known(crew)


def test_what_was_counted_moves_with_the_one_who_lists(crew: JournalCrew) -> None:
    for members in (("ann",), ("bob", "cid"), ("cid",), ("ann", "bob", "cid")):
        crew.move(*members)
        live(crew, DAY / 4)
        assert B in known(crew)
    live(crew, 12 * LOOK)
    assert B not in known(crew)


def test_one_that_is_found_once_begins_anew(crew: JournalCrew, root: Path, tmp_path: Path) -> None:
    live(crew, DAY - 2 * LOOK)
    remove(tmp_path, "away", root / B)
    live(crew, LOOK)
    remove(root, B)
    live(crew, DAY - 2 * LOOK)
    assert B in known(crew)
    live(crew, 8 * LOOK)
    assert B not in known(crew)


def test_none_is_forgotten_where_that_is_not_wanted(root: Path, tmp_path: Path) -> None:
    crew = JournalCrew(tmp_path / "work", "ann", all=over(root, forget_after=None))
    write(root, range(3), A)
    crew.epochs(3)
    remove(root, A)
    live(crew, 3 * DAY)
    assert (known(crew), floor(crew)) == ({A}, 0)


@pytest.mark.parametrize("seconds", [0.0, 3600.0, float("nan")])
def test_clocks_may_differ_by_a_day_so_it_takes_a_day_at_the_least(root: Path, seconds: float) -> None:
    with pytest.raises(DefinitionError, match="forget_after"):
        over(root, forget_after=seconds)


def test_a_failed_or_hanging_listing_makes_nobody_be_missing() -> None:
    """A listing counts once, however often it is looked at."""
    clock = Clock()
    absences = Absences({"s"}, clock)
    last = Listing(frozenset("a"), Begun(1), 50.0)
    for _ in range(5):
        absences.note("s", {"a", "b"}, last)
        clock.now += DAY
    assert absences.stated() == {"s": {"b": 0}}


def test_how_long_is_written_down_once_in_a_while() -> None:
    clock = Clock()
    absences = Absences({"s"}, clock)
    told = []
    for number in range(100):
        clock.now += 5.0
        absences.note("s", {"a", "b"}, Listing(frozenset("a"), Begun(1), clock.now))
        told.append(absences.stated()["s"]["b"])
        assert told[-1] <= 5 * number
    assert len(set(told)) < 10
    assert told[-1] > 400


# what keeps them


def test_a_journal_that_is_there_is_not_forgotten_although_nobody_lists_it(
    root: Path, tmp_path: Path
) -> None:
    crew = JournalCrew(tmp_path / "work", "ann", all=over(root))
    write(root, range(3), A)
    write(root, range(3, 6), B)
    crew.epochs(4)
    # A person has accepted that the source lists fewer from now on; what it has begun, it reads on.
    crew.sources = {"all": SourceSpec("all", over(root, prefix="s/a/"))}
    crew.die("ann")
    crew.seat("ann")
    live(crew, 2 * DAY)
    assert B in known(crew)
    write(root, range(6, 9), B)
    crew.epochs(4)
    assert crew.ids() == list(range(9))


def test_a_journal_that_a_transaction_waits_for_is_not_forgotten(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.write(B, line(101, 11, Flag.CONTINUE))
    crew = JournalCrew(tmp_path / "work", "ann", all=over(desk.log.root))
    crew.epochs(3)
    remove(desk.log.root, B, tmp_path / "away")
    desk.write(A, line(100, 10, Flag.CONTINUE), ack(20, hints={B: 21}))
    crew.epochs(3)
    live(crew, 2 * DAY)
    assert B in known(crew)
    remove(tmp_path, "away", desk.log.root / B)
    desk.write(B, ack(21, hints={A: 20}))
    crew.epochs(5)
    assert crew.ids() == [100, 101]
    remove(desk.log.root, B)
    live(crew, 1.1 * DAY)
    assert B not in known(crew)


def test_one_with_an_open_transaction_that_nobody_waits_for_is_forgotten(tmp_path: Path) -> None:
    """Its documents are gone, and with them what an ack could commit."""
    desk = Desk(tmp_path)
    desk.write(B, line(101, 11, Flag.CONTINUE))
    desk.write(C, line(102, 5))
    crew = JournalCrew(tmp_path / "work", "ann", all=over(desk.log.root))
    crew.epochs(3)
    [states] = [read_states(crew.storage, each.states) for each in crew.standings() if each.states]
    clock = position_of("all/b", states[PartName("all", B)].state).clock
    remove(desk.log.root, B)
    live(crew, 1.1 * DAY)
    assert (known(crew), floor(crew)) == ({C}, clock)


def forgotten(tmp_path: Path) -> tuple[Desk, JournalCrew]:
    """Journals of which one was deleted and forgotten, after its document with clock 11 and its ack."""
    desk = Desk(tmp_path)
    desk.write(B, line(101, 11, Flag.CONTINUE), ack(21))
    desk.write(C, line(102, 5))
    crew = JournalCrew(tmp_path / "work", "ann", "bob", all=over(desk.log.root))
    crew.epochs(4)
    remove(desk.log.root, B)
    live(crew, 1.1 * DAY)
    assert known(crew) == {C}
    return desk, crew


def test_nobody_waits_for_what_can_never_be_read_of_a_journal_that_was_forgotten(tmp_path: Path) -> None:
    """Its documents up to that clock were read before, or would be refused."""
    desk, crew = forgotten(tmp_path)
    # Its clocks are later, as are those of all that is written after a day.
    desk.write(A, line(100, 30, Flag.CONTINUE), ack(32, hints={B: 21}))
    crew.epochs(6)
    assert crew.ids() == [100, 101, 102]


def test_a_later_hint_at_a_journal_that_was_forgotten_is_reached_by_its_ack(tmp_path: Path) -> None:
    """That is what a person is told to do about hints that nobody reaches."""
    desk, crew = forgotten(tmp_path)
    desk.write(A, line(100, 30, Flag.CONTINUE), ack(32, hints={B: 33}))
    crew.epochs(6)
    assert crew.ids() == [101, 102]
    with pytest.raises(HintNotReached) as caught:
        crew.workers["ann"].check_hints(0)
    way_out = rf"has no journal {B}; .* penstock journal ack .* --clock \d+ --create$"
    assert re.search(way_out, caught.value.what)
    again = Desk(tmp_path / "again")
    again.write(B, ack(33))
    shutil.copytree(again.log.root / B, desk.log.root / B)
    crew.epochs(5)
    assert crew.ids() == [100, 101, 102]


def test_a_hint_at_a_journal_that_was_deleted_is_reached_by_an_ack_where_it_was_read_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    desk.write(B, line(101, 11, Flag.CONTINUE), ack(21))
    crew = JournalCrew(tmp_path / "work", "ann", all=over(desk.log.root))
    crew.epochs(4)
    remove(desk.log.root, B)
    desk.write(A, line(100, 30, Flag.CONTINUE), ack(32, hints={B: 33}))
    crew.epochs(6)
    assert crew.ids() == [101]
    with monkeypatch.context() as patched:
        # It may be the storage that keeps it from being read.
        patched.setattr(Journals, "everything", lambda *_: pytest.fail("the storage is asked"))
        with pytest.raises(HintNotReached) as caught:
            crew.workers["ann"].check_hints(0)
    assert "penstock journal ack" in caught.value.what and "--create --at OFFSET" in caught.value.what
    with JournalWriter(desk.log.root) as writer:
        writer.begin(B, desk.log.heads[B])
        writer.recover([Ack(B, ack(33).decode().rstrip("\n"))])
    crew.epochs(5)
    assert crew.ids() == [100, 101]


# what comes back


def test_one_that_comes_back_as_it_was_is_refused(crew: JournalCrew, root: Path, tmp_path: Path) -> None:
    live(crew, DAY + 5 * LOOK)
    remove(tmp_path, "away", root / B)
    crew.epoch()
    decision = crew.end(crew.announce())
    assert decision.outcome is Outcome.ABORT
    assert decision.reason is not None
    assert "it may have been read before" in decision.reason
    assert crew.ids() == list(range(30))
    # Whoever owns it, and after whatever restart.
    for member in list(crew.workers):
        crew.die(member)
    crew.seat("cid")
    assert crew.end(crew.announce()).outcome is Outcome.ABORT
    remove(root, B)
    write(root, range(30, 40), A)
    crew.epochs(4)
    assert crew.ids() == list(range(40))


def test_what_comes_back_is_left_out_where_that_is_asked_for(root: Path, tmp_path: Path) -> None:
    crew = JournalCrew(tmp_path / "work", "ann", all=over(root, on_disorder="skip"))
    write(root, range(10), B)
    crew.epochs(4)
    remove(root, B, tmp_path / "away")
    live(crew, DAY + 5 * LOOK)
    remove(tmp_path, "away", root / B)
    write(root, range(10, 15), B)
    crew.epochs(6)
    assert crew.ids() == list(range(15))


def test_one_that_is_new_under_an_old_name_is_read(crew: JournalCrew, root: Path) -> None:
    live(crew, DAY + 5 * LOOK)
    write(root, range(30, 40), B)
    write(root, range(40, 50), "s/d/pivot=00")
    crew.epochs(6)
    assert crew.ids() == list(range(50))
    remove(root, B)
    before = floor(crew)
    live(crew, DAY + 5 * LOOK)
    assert B not in known(crew)
    assert floor(crew) > before


@pytest.mark.parametrize("moment", range(6))
def test_one_that_comes_back_while_it_is_forgotten_is_read_once(
    crew: JournalCrew, root: Path, moment: int
) -> None:
    """New documents come at each moment around the one at which it is forgotten."""
    live(crew, DAY)
    crew.epochs(moment)
    fresh = Path(root.parent / "fresh")
    fresh.mkdir()
    with JournalWriter(fresh, sync=False) as writer:
        writer.append(B, [{"id": number} for number in range(30, 35)])
    shutil.copytree(fresh / B, root / B)
    is_known = B in known(crew)
    for _ in range(8):
        decision = crew.end(crew.announce())
        if decision.outcome is Outcome.ABORT:
            # The state that is still known is one of another journal, which was longer.
            assert is_known
            return
    assert crew.ids() == list(range(35))


@pytest.mark.parametrize("lost", ["abort", "die"])
def test_an_epoch_that_is_given_up_forgets_nothing(
    crew: JournalCrew, root: Path, tmp_path: Path, lost: str
) -> None:
    live(crew, DAY + LOOK)
    while B in known(crew):
        before = crew.decision
        for _ in range(3):
            crew.fail()
        if lost == "die":
            for member in list(crew.workers):
                crew.die(member)
            crew.seat("ann", "bob")
        assert crew.decision == before
        assert B in known(crew)
        crew.epoch()
    assert floor(crew) > 0
    write(root, range(30, 33), A)
    crew.epochs(4)
    assert crew.ids() == list(range(33))


def test_standings_of_before_are_read(crew: JournalCrew) -> None:
    for standing in crew.standings():
        assert Standing.decode(standing.encode()) == standing
    assert Standing.decode('{"format":1}') == Standing()

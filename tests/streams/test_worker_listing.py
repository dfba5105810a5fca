"""Listing beside the epochs: how long it takes, how it fails, and what it finds."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.control.cluster.rules.model import Outcome
from penstock.streams.api.stream import Timestamps
from penstock.streams.model import END, OPEN, Standing
from tests.streams.owners import lister
from tests.streams.support import Crew, Scripted, all_of

DEADLINE = 20.0


class Slow:
    """Lists in another thread, which takes until the test says so."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)

    @property
    def under_way(self) -> int:
        return len(self._waiting)

    def finish(self) -> None:
        """Let what was begun be done."""
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.setattr("penstock.streams.ingest.part_listing._PATIENCE", 0.0)
    return Slow()


def slowly(slow: Slow, crew: Crew, *members: str) -> None:
    crew.run = slow
    for member in members:
        crew.start(member)


def problems(crew: Crew) -> dict[str, str]:
    standings = [Standing.decode(text) for text in crew.chain[-1].frontiers.values()]
    return {name: said for each in standings for name, said in each.problems.items()}


def test_neighbours_are_read_while_a_listing_takes_long(slow: Slow) -> None:
    crew = Crew("ann", s=Scripted(a=[1]), t=Scripted(b=[1]))
    slowly(slow, crew, "ann")
    crew.epoch()
    assert slow.under_way == 2
    slow.finish()
    crew.sources["t"].source.rows["c"] = [2]  # type: ignore[attr-defined]
    crew.epochs(4)
    assert sorted(crew.rows()) == ["a:0", "b:0"]
    assert slow.under_way == 2
    slow.finish()
    crew.epochs(2)
    assert sorted(crew.rows()) == ["a:0", "b:0", "c:0"]


def test_a_listing_outlives_any_number_of_epochs_that_are_given_up(slow: Slow) -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", s=source)
    slowly(slow, crew, "ann")
    for _ in range(3):
        crew.fail()
    slow.finish()
    for _ in range(3):
        crew.fail()
    crew.epochs(2)
    assert crew.rows() == ["a:0"]


def test_a_listing_that_is_not_done_is_not_begun_again(slow: Slow) -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", s=source)
    slowly(slow, crew, "ann")
    crew.epochs(5)
    crew.move("ann")
    crew.epochs(5)
    assert (slow.under_way, source.looks) == (1, 0)


def test_a_quick_listing_is_in_its_epoch_and_a_slow_one_holds_it_up_for_a_moment_only() -> None:
    source, go_on = Scripted(a=[1]), threading.Event()
    crew = Crew("ann", s=source, t=Scripted(b=[1]))
    crew.run = lambda work: threading.Thread(target=work, daemon=True).start()
    crew.start("ann")
    source.on_look = lambda: go_on.wait(DEADLINE)
    crew.epochs(3)
    assert crew.rows() == ["b:0"]
    go_on.set()
    for _ in range(100):
        crew.epoch()
        if "a:0" in crew.rows():
            break
        threading.Event().wait(0.01)
    assert sorted(crew.rows()) == ["a:0", "b:0"]


@pytest.mark.parametrize("members", [("ann",), ("ann", "ben")])
def test_the_end_needs_a_listing_that_began_after_the_last_part_had_finished(
    slow: Slow, members: tuple[str, ...]
) -> None:
    source = Scripted(a=[1])
    crew = Crew(*members, s=source)
    slowly(slow, crew, *members)
    crew.epoch()
    slow.finish()
    # This one begins while the part is read, and takes until long after that.
    crew.epochs(5)
    assert crew.rows() == ["a:0"]
    waiting, source.hidden = slow.under_way, {"a"}
    assert waiting == 1
    slow.finish()
    source.rows["child"] = [2]
    crew.epochs(1)
    assert crew.scope.watermark == OPEN
    source.hidden = set()
    for _ in range(8):
        slow.finish()
        crew.epoch()
    assert sorted(crew.rows()) == ["a:0", "child:0"]
    assert crew.scope.watermark == END


def test_a_part_that_was_found_by_the_last_listing_may_leave_others_behind(slow: Slow) -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", list_every=60.0, s=source)
    slowly(slow, crew, "ann")
    crew.epoch()
    slow.finish()
    crew.epochs(3)
    # All have finished, and the next listing finds another part.
    crew.clock.now += 1.0
    source.rows["b"] = [2]
    crew.epoch()
    slow.finish()
    crew.epochs(2)
    assert sorted(crew.rows()) == ["a:0", "b:0"]
    source.rows["c"] = [3]
    crew.epochs(3)
    assert crew.scope.watermark == OPEN
    crew.clock.now += 1.0
    for _ in range(6):
        crew.epoch()
        slow.finish()
        crew.clock.now += 1.0
    assert sorted(crew.rows()) == all_of(a=1, b=1, c=1)
    assert crew.scope.watermark == END


def test_a_source_that_cannot_be_listed_is_told_and_holds_up_nobody() -> None:
    source = Scripted(a=[1])
    crew = Crew("ann", s=source, t=Scripted(b=[1]))

    def broken() -> None:
        raise ConnectionError("no route")

    source.on_look = broken
    crew.epochs(3)
    said = "source s: list_parts failed: ConnectionError: no route"
    assert (crew.rows(), problems(crew), crew.told) == (["b:0"], {"s": said}, [said])
    assert crew.scope.watermark == OPEN
    source.on_look = lambda: None
    crew.epochs(2)
    assert (sorted(crew.rows()), problems(crew)) == (["a:0", "b:0"], {})


def test_parts_that_are_known_are_read_although_the_source_cannot_be_listed() -> None:
    source = Scripted(a=[1])
    source.endless = {"a"}
    crew = Crew("ann", "ben", s=source)
    crew.epochs(2)
    source.on_look = lambda: 1 / 0
    source.rows["a"] += [2]
    crew.epoch()
    assert crew.rows() == all_of(a=2)
    assert "ZeroDivisionError" in problems(crew)["s"]


@pytest.mark.parametrize("found", [[7], ["a", None], [""], [b"a"], ["\ud800"], "abc", None])
def test_names_of_parts_must_be_text(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Scripted()
    monkeypatch.setattr(source, "list_parts", lambda: found)
    crew = Crew("ann", s=source)
    crew.epochs(4)
    assert "source s: list_parts" in problems(crew)["s"]
    assert crew.scope.watermark == OPEN


def test_a_listing_that_never_returns_is_told(slow: Slow) -> None:
    crew = Crew("ann", s=Scripted(a=[1]))
    slowly(slow, crew, "ann")
    crew.epochs(2)
    assert problems(crew) == {}
    crew.clock.now += 90.0
    assert crew.end(crew.announce()).outcome is Outcome.COMMIT
    assert problems(crew) == {"s": "source s: list_parts has not returned for 90 s"}


def test_a_listing_that_could_not_be_begun_is_told_and_begun_again() -> None:
    crew = Crew("ann", list_every=10.0, s=Scripted(a=[1]))

    def no_threads(work: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    crew.run = no_threads
    worker = crew.start("ann")
    crew.epochs(2)
    said = "source s: list_parts could not be begun: RuntimeError: can't start new thread"
    assert (problems(crew), crew.told) == ({"s": said}, [said])
    worker._listings.listers["s"]._run = lambda work: work()
    crew.clock.now += 10.0
    crew.epochs(2)
    assert (crew.rows(), problems(crew)) == (["a:0"], {})


def test_what_another_lister_found_is_known_to_the_next(slow: Slow) -> None:
    source = Scripted(**{f"p{n}": [1] for n in range(10)})
    crew = Crew("ann", "ben", s=source, timestamps=Timestamps("at", 1.0))
    crew.epochs(2)
    old = lister("ann", "ben")
    new = ({"ann", "ben"} - {old}).pop()
    crew.move(new)
    crew.epochs(3)
    crew.move("ann", "ben")
    crew.epochs(3)
    assert sorted(crew.rows()) == all_of(**{f"p{n}": 1 for n in range(10)})

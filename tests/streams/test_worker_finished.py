"""Parts that have finished: written once, remembered for good, and read on where their source has grown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from penstock.sources import RateSource
from penstock.streams.ingest import finished_parts
from penstock.streams.ingest.finished_parts import STATES, FinishedParts, StatedPart, StatesFile
from penstock.streams.ingest.part_lists import ANNOUNCED, Announced
from penstock.streams.model import Pointer, Standing
from tests.streams.support import Crew, MemoryStorage, Scripted, all_of

FILES = 1200
AT_ONCE = 20


class Folder(Scripted):
    """Files that come one after the other, and are all listed for ever."""


class Growing(Scripted):
    """A source that can be given a later end."""

    def __init__(self, end: int, parts: Iterable[str] = ("a", "b")) -> None:
        super().__init__(**{name: list(range(end)) for name in parts})
        self.end = end

    def describe(self) -> dict[str, object]:
        return {"end": self.end}

    def reopens(self, before: Mapping[str, object]) -> bool:
        was = before["end"]
        return isinstance(was, int) and self.end > was


class Counted(MemoryStorage):
    """Counts the bytes that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def write(self, path: str, data: bytes) -> None:
        self.bytes += len(data)
        super().write(path, data)


def finished_parts_of(crew: Crew) -> FinishedParts:
    standings = [Standing.decode(text) for text in crew.chain[-1].frontiers.values()]
    return FinishedParts.union(FinishedParts.read(crew.storage, each.finished) for each in standings)


def counted(*members: str, source: Scripted) -> tuple[Crew, Counted]:
    crew, storage = Crew(*members, s=source), Counted()
    crew.storage = storage
    for member in members:
        crew.start(member)
    return crew, storage


@pytest.mark.parametrize("members", [("ann",), ("ann", "ben")])
def test_an_epoch_writes_what_is_new_however_many_parts_have_finished(
    members: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished_parts, "LEAST", 32)
    monkeypatch.setattr(finished_parts, "TIER", 4)
    source = Folder()
    crew, storage = counted(*members, source=source)
    costs = []
    for first in range(0, FILES, AT_ONCE):
        source.rows |= {f"file-{n:06}": [n] for n in range(first, first + AT_ONCE)}
        before = storage.bytes
        crew.epoch()
        costs.append(storage.bytes - before)
    crew.epoch()
    third = len(costs) // 3
    early, late = sum(costs[:third]) / third, sum(costs[-third:]) / third
    # Each part is written a few times in all: once more for each tier of segments there is.
    assert late < 2 * early
    found = finished_parts_of(crew)
    assert (len(found), len(dict(found.parts(storage)))) == (FILES, FILES)
    assert sorted(crew.rows()) == sorted(f"file-{n:06}:0" for n in range(FILES))


def test_finished_parts_are_known_after_any_change_of_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_parts, "LEAST", 8)
    monkeypatch.setattr(finished_parts, "TIER", 2)
    source = Folder(**{f"p{n}": [1] for n in range(50)})
    crew = Crew("ann", s=source)
    crew.epochs(2)
    for members in (("ann", "ben"), ("cleo",), ("ann", "ben", "cleo"), ("ben",)):
        source.rows |= {f"{members[0]}{len(members)}{n}": [1] for n in range(20)}
        crew.move(*members)
        crew.fail()
        crew.epochs(3)
    for member in list(crew.workers):
        crew.die(member)
    crew.seat("zoe")
    crew.epochs(3)
    assert sorted(crew.rows()) == all_of(**dict.fromkeys(source.rows, 1))
    assert len(finished_parts_of(crew)) == len(source.rows)


def test_what_was_written_before_there_were_segments_is_read() -> None:
    source = Folder(a=[1], b=[1])
    source.endless = {"b"}
    crew = Crew("ann", s=source)
    crew.epochs(2)
    assert crew.decision is not None
    standing = Standing.decode(crew.decision.frontiers["ann"])
    assert standing.finished is not None and standing.states is not None
    storage = crew.storage
    old = Pointer.write(storage, "old", STATES, StatesFile({"s/a": StatedPart("1:1", True)}))
    listing = Pointer.write(storage, "listing", ANNOUNCED, Announced({"s": ("a", "b")}))
    text = Standing(standing.states, listing, {}, old).encode()
    crew.decision = replace(crew.decision, frontiers={"ann": text})
    crew.die("ann")
    crew.seat("ben")
    source.rows["b"] += [2]
    crew.epochs(3)
    assert sorted(crew.rows()) == ["a:0", "b:0", "b:1"]
    assert [str(name) for name, _ in finished_parts_of(crew).parts(storage)] == ["s/a"]


def test_finished_parts_are_read_on_where_their_source_has_a_later_end() -> None:
    crew = Crew("ann", "ben", s=Growing(3), t=Scripted(x=[1]))
    crew.epochs(4)
    for member in list(crew.workers):
        crew.die(member)
    crew.sources["s"] = type(crew.sources["s"])("s", Growing(5))
    crew.seat("cleo")
    crew.epochs(4)
    assert sorted(crew.rows()) == sorted([*all_of(a=5, b=5), "x:0"])
    crew.move("ann", "cleo")
    crew.epochs(3)
    assert len(crew.rows()) == 11
    assert len(finished_parts_of(crew)) == 3
    assert crew.told == []


def test_finished_parts_that_are_not_read_again_are_told() -> None:
    crew = Crew("ann", s=Growing(3))
    crew.epochs(3)
    crew.die("ann")
    crew.sources["s"] = type(crew.sources["s"])("s", Growing(2, ("a", "b", "c")))
    crew.seat("ben")
    crew.epochs(3)
    assert sorted(crew.rows()) == all_of(a=3, b=3, c=2)
    assert ["source s is described otherwise" in said for said in crew.told] == [True]


def test_a_rate_source_goes_on_with_more_rows_and_not_with_fewer() -> None:
    before = RateSource(rows=10).describe()
    assert RateSource(rows=20).reopens(before)
    assert RateSource(rows=20, parts=8).reopens(before)
    assert RateSource().reopens(before)
    assert not RateSource(rows=5).reopens(before)
    assert not RateSource(rows=20, keys=3).reopens(before)
    assert not RateSource(rows=20).reopens(RateSource().describe())

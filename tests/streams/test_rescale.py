"""Instances come and go while a stream runs: parts move with their states, and the end comes once."""

from __future__ import annotations

from penstock.streams.model import END, SCOPE
from tests.streams.fleet import Fleet, uneven_misfits
from tests.streams.jobs.gated import PARTS, Gates

MARGIN = 50
"""So many more rows than it has by now a part gets before its end, so that it has not passed it yet."""


def test_from_one_to_three_to_two_while_parts_finish(fleet: Fleet, gates: Gates) -> None:
    ends: dict[str, int] = {}
    first = fleet.start()
    fleet.until(lambda: len(fleet.numbers()) == PARTS, "the first rows of all parts")
    finish(fleet, gates, ends, range(2))
    fleet.until(lambda: finished(fleet) >= {"0", "1"}, "the end of the first parts")

    others = [fleet.start(), fleet.start()]
    fleet.until(lambda: joined(fleet) > 1, "the second instance")
    finish(fleet, gates, ends, range(2, 5))
    fleet.until(lambda: all(map(fleet.seated, others)), "seats for all")
    known = fleet.committed
    names = {first.name, *(child.name for child in others)}
    fleet.until(lambda: fleet.readers(known) == names, "rows from all three")
    finish(fleet, gates, ends, range(5, 8))

    # The one that leads, and is first to go.
    leaver = fleet.until(fleet.leader, "somebody who leads")
    leaver.leave()
    fleet.until(lambda: leaver.code is not None, "the goodbye")
    known = fleet.committed
    fleet.until(lambda: fleet.readers(known) == names - {leaver.name}, "rows from the other two")
    assert fleet.control.scope(SCOPE).watermark != END
    finish(fleet, gates, ends, range(8, PARTS))
    check_end(fleet, ends)

    assert leaver.result == "left"
    assert {child.result for child in fleet.crew.children if child is not leaver} == {"ended"}
    rescales = [event["values"] for event in fleet.told("rescaled")]
    sizes = [len(each["members"]) for each in rescales]
    assert sizes[0] in (2, 3) and 3 in sizes and sizes[-1] == 2
    assert all(0 < each["moved"] < 1 and 0 < each["pause"] < 30 for each in rescales)


def finish(fleet: Fleet, gates: Gates, ends: dict[str, int], parts: range) -> None:
    """Tell parts where they end, a little later than they are."""
    known = fleet.numbers()
    for part in map(str, parts):
        ends[part] = known[part] + MARGIN
        gates.end(part, ends[part])


def finished(fleet: Fleet) -> set[str]:
    return {part for part, known in fleet.states().items() if known.finished}


def joined(fleet: Fleet) -> int:
    return len(fleet.told("joined"))


def check_end(fleet: Fleet, ends: dict[str, int]) -> None:
    """The end came once, after every row of every part, and all rows are there once."""
    fleet.until(lambda: fleet.ended, "the end")
    fleet.until(lambda: not fleet.alive, "the goodbye of all")
    epochs = fleet.log.entries(0)
    assert [epoch.ended for epoch in epochs].count(True) == 1 and epochs[-1].ended
    assert fleet.numbers() == ends
    assert finished(fleet) == set(ends)
    assert uneven_misfits(fleet.queue(), ends) == ""
    assert uneven_misfits(fleet.rows("all"), ends) == ""

"""Instances that die or are stopped in the middle of things: others go on, and every row is there once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from penstock.streams.outputs.claims import OutputClaim, OutputClaims
from penstock.workers.stream_instances import StreamChild
from tests.streams.fleet import Fleet, misfits
from tests.streams.jobs.gated import PARTS, Gates

MARGIN = 50


def test_whoever_is_killed_wherever_another_goes_on(fleet: Fleet, gates: Gates) -> None:
    gates.pause()
    # The first one leads and runs the output; the second one has both after it.
    first = fleet.start("output.written=kill@3")
    fleet.until(lambda: fleet.committed > 0, "the first epoch")
    second = fleet.start("epoch.decided=kill@12")
    fleet.until(lambda: fleet.seated(second), "a seat for the second")
    gates.resume()
    dies(fleet, first)
    third, fourth = fleet.start("stream.polled=kill@6"), fleet.start("stream.prepared=kill@6")
    dies(fleet, second)
    fleet.until(lambda: has_worked(fleet, third) and has_worked(fleet, fourth), "the next two")
    last = fleet.start()
    dies(fleet, third)
    dies(fleet, fourth)
    fleet.until(lambda: fleet.seated(last), "a seat for the last")
    known = fleet.committed
    fleet.until(lambda: fleet.readers(known) == {last.name}, "rows from the last")
    check_end(fleet, gates)
    assert last.result == "ended"
    assert claim(fleet).member == last.name


@pytest.mark.soak
def test_whoever_leads_is_killed_around_a_decision_another_goes_on(fleet: Fleet, gates: Gates) -> None:
    first = fleet.start("epoch.deciding=kill@6")
    fleet.until(lambda: fleet.committed > 0, "the first epoch")
    second = fleet.start("epoch.published=kill@6")
    dies(fleet, first)
    fleet.until(lambda: fleet.leader() is second or second.code is not None, "the second leads")
    third = fleet.start("epoch.prepared=kill@6")
    dies(fleet, second)
    fleet.until(lambda: fleet.leader() is third or third.code is not None, "the third leads")
    fourth = fleet.start("output.batch=kill@3")
    dies(fleet, third)
    fleet.until(lambda: claim(fleet).member == fourth.name, "the output's next owner")
    last = fleet.start()
    dies(fleet, fourth)
    fleet.until(lambda: claim(fleet).member == last.name, "the output's last owner")
    known = fleet.committed
    fleet.until(lambda: fleet.readers(known) == {last.name}, "rows from the last")
    check_end(fleet, gates)
    assert last.result == "ended"


@pytest.mark.soak
def test_whoever_is_killed_while_parts_move_another_goes_on(fleet: Fleet, gates: Gates) -> None:
    # Its own first assignment is the first one: it dies when all have stopped and nobody has started.
    first = fleet.start("rotate.before=kill@2")
    fleet.until(lambda: len(fleet.numbers()) == PARTS, "rows of all parts")
    second = fleet.start("stream.drained=kill")
    dies(fleet, first)
    fleet.until(lambda: fleet.seated(second), "a seat for the second")
    before = fleet.numbers()
    # This one dies when it has collected what moves to the third.
    third = fleet.start("rotate.after=kill@2")
    dies(fleet, second)
    fleet.until(lambda: fleet.leader() is third, "the third leads")
    # And this one when the owners have changed, and nobody has started.
    last = fleet.start()
    dies(fleet, third)
    known = fleet.committed
    fleet.until(lambda: fleet.readers(known) == {last.name}, "rows from the last")
    after = fleet.numbers()
    assert all(after[part] >= number for part, number in before.items())
    check_end(fleet, gates)
    assert last.result == "ended"


def test_one_that_was_stopped_wakes_up_and_changes_nothing(fleet: Fleet, gates: Gates) -> None:
    gates.pause()
    # It leads, and is stopped between the files of a batch and the write that makes them visible.
    zombie = fleet.start("sink.parquet.files=stop@3")
    fleet.until(lambda: fleet.committed > 0, "the first epoch")
    other = fleet.start()
    fleet.until(lambda: fleet.seated(other), "a seat for the other")
    before = fleet.control.assignment.seat(zombie.name)
    gates.resume()
    fleet.until(lambda: stopped(zombie), "the stop")
    token = claim(fleet).token
    fleet.until(lambda: claim(fleet).member == other.name, "the output's new owner")
    taken = claim(fleet).batch
    fleet.until(lambda: claim(fleet).batch > taken + 2, "batches of the new owner")
    assert fleet.leader() is other and not fleet.seated(zombie)

    os.kill(zombie.pid, signal.SIGCONT)
    fleet.until(lambda: fleet.seated(zombie), "its return")
    after = fleet.control.assignment.seat(zombie.name)
    assert before is not None and after is not None and before.session != after.session
    known = fleet.committed
    fleet.until(lambda: fleet.readers(known) == {zombie.name, other.name}, "rows from both")
    check_end(fleet, gates)
    assert (claim(fleet).member, claim(fleet).token) == (other.name, token + 1)
    assert {zombie.result, other.result} == {"ended"}


def dies(fleet: Fleet, child: StreamChild) -> None:
    fleet.until(lambda: child.code is not None, f"the death of {child.name}")
    assert child.code == -signal.SIGKILL


def has_worked(fleet: Fleet, child: StreamChild) -> bool:
    return child.code is not None or fleet.seated(child)


def stopped(child: StreamChild) -> bool:
    return Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def claim(fleet: Fleet) -> OutputClaim:
    return OutputClaims(fleet.store, fleet.layout).read("all")


def check_end(fleet: Fleet, gates: Gates) -> None:
    """Let all parts end, and look at every row."""
    count = MARGIN + max(fleet.numbers().values())
    gates.end("all", count)
    fleet.until(lambda: fleet.ended, "the end")
    fleet.until(lambda: not fleet.alive, "the goodbye of all")
    assert misfits(fleet.queue(), PARTS, count) == ""
    assert misfits(fleet.rows("all"), PARTS, count) == ""

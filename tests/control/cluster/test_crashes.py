"""Real processes, really killed or stopped: the next leader finishes or gives up, and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ClusterConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.leader import steady
from penstock.control.cluster.node import Node
from penstock.control.cluster.rules.model import BarrierKind, Control, Decision, Member, Outcome, Seat
from penstock.store.sqlite import SqliteStore
from tests.control.cluster.nodes import LONG, SHORT
from tests.control.cluster.support import KEYS, PARTS, SCOPE, Counting, until

pytestmark = pytest.mark.usefixtures("lively")

ROOT = Path(__file__).parents[3]


class Place:
    """A store, instances in processes of their own, and instances in this one."""

    def __init__(self, path: Path) -> None:
        self.path = path / "store.db"
        self.store = SqliteStore(self.path)
        self.room, self.records = Room(self.store, KEYS), Records(self.store, KEYS)
        self.children: list[subprocess.Popen[str]] = []
        self.nodes: list[Node] = []

    def child(self, name: str, failpoints: str = "", config: ClusterConfig = SHORT) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.control.cluster.child", str(self.path), name]
        child = subprocess.Popen(
            [*command, json.dumps(asdict(config))],
            cwd=ROOT,
            env={**os.environ, "PENSTOCK_FAILPOINTS": failpoints},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    def node(self, name: str, config: ClusterConfig = SHORT) -> Counting:
        participant = Counting(name)
        node = Node(self.store, Member(name, "", "1"), config, {SCOPE: participant}, {SCOPE: steady(0.05)})
        self.nodes.append(node.start())
        return participant

    def close(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        for node in self.nodes:
            node.stop()
        self.store.close()

    @property
    def control(self) -> Control:
        return self.room.read()

    @property
    def decisions(self) -> dict[int, Decision]:
        return {decision.epoch: decision for decision in self.records.decisions(SCOPE)}

    def until_leads(self, name: str) -> None:
        until(lambda: self.control.lease.member == name, f"{name} leads")

    def until_seated(self, *names: str) -> tuple[Seat, ...]:
        def seated() -> tuple[Seat, ...] | None:
            seats = self.control.assignment.seats
            return seats if tuple(seat.member for seat in seats) == names else None

        found: tuple[Seat, ...] = until(seated, f"{names} have seats")
        return found

    def until_epochs(self, count: int) -> None:
        goal = self.control.scope(SCOPE).committed + count
        until(lambda: self.control.scope(SCOPE).committed >= goal, f"{count} more epochs are committed")

    def assert_consistent(self) -> None:
        """No number was decided twice or skipped, and no work was lost or counted twice."""
        decisions = list(self.decisions.values())
        assert [d.epoch for d in decisions] == list(range(1, len(decisions) + 1))
        committed = [d for d in decisions if d.outcome is Outcome.COMMIT]
        for before, after in pairwise(committed):
            assert after.previous == before.epoch
            for part in PARTS:
                step = int(after.states[part]) - int(before.states[part])
                assert step == 1 or (step == 0 and after.kind is BarrierKind.DRAIN), (
                    f"{part} in epoch {after.epoch}"
                )
        aborted = {d.epoch for d in decisions if d.outcome is Outcome.ABORT}
        assert set(self.control.scope(SCOPE).aborted) == aborted


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def state(child: subprocess.Popen[str]) -> str:
    """The process state as the kernel tells it: T is stopped."""
    return Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def report(child: subprocess.Popen[str]) -> dict[str, Any]:
    """Ask a child to leave; what it said at its end."""
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err[-3000:]
    found: dict[str, Any] = json.loads(out)
    return found


# Where the leader dies in its third epoch, and how that one ends.
EPOCHS = {
    "epoch.prepared": Outcome.ABORT,
    "epoch.deciding": Outcome.ABORT,
    "epoch.decided": Outcome.COMMIT,
    "epoch.published": Outcome.COMMIT,
}


@pytest.mark.parametrize("point", EPOCHS)
def test_killed_in_an_epoch(place: Place, point: str) -> None:
    child = place.child("ann", f"{point}=kill@3")
    assert child.wait(60) == -signal.SIGKILL
    left = place.control.scope(SCOPE)
    assert (3 in place.decisions) == (EPOCHS[point] is Outcome.COMMIT)
    assert left.committed == (3 if point == "epoch.published" else 2)
    place.node("ben")
    place.until_seated("ben")
    place.until_epochs(2)
    decision = place.decisions[3]
    assert (decision.outcome, decision.token) == (EPOCHS[point], 1)
    assert [term.how for term in place.control.terms] == ["first", "expired"]
    place.assert_consistent()


@pytest.mark.parametrize("point", ["rotate.before", "rotate.after"])
def test_killed_in_a_rotation(place: Place, point: str) -> None:
    child = place.child("ann", f"{point}=kill@2")
    place.until_seated("ann")
    place.until_epochs(1)
    ben = place.node("ben")
    assert child.wait(60) == -signal.SIGKILL
    version = place.control.assignment.version
    assert version == (1 if point == "rotate.before" else 2)
    place.until_seated("ben")
    place.until_epochs(2)
    assert place.control.lease.member == "ben"
    assert [snapshot.version for snapshot in place.records.assignments()] == [1, *range(2, version + 2)]
    assert set(ben.owned) == set(PARTS)
    place.assert_consistent()


@pytest.mark.parametrize("point", ["epoch.deciding", "epoch.decided"])
def test_stopped_past_its_lease_a_leader_finds_everything_refused(place: Place, point: str) -> None:
    child = place.child("ann", f"{point}=stop@5")
    place.until_leads("ann")
    place.node("ben")
    until(lambda: state(child) == "T", "the child stops itself")
    barrier = place.control.scope(SCOPE).open
    assert barrier is not None
    place.until_leads("ben")
    place.until_seated("ben")
    place.until_epochs(1)
    decided = place.decisions[barrier.epoch]
    assert decided.outcome is (Outcome.ABORT if point == "epoch.deciding" else Outcome.COMMIT)
    os.kill(child.pid, signal.SIGCONT)
    place.until_seated("ann", "ben")
    place.until_epochs(1)
    control = place.control
    assert [term.member for term in control.terms] == ["ann", "ben"], "somebody else led"
    assert (control.lease.member, control.lease.token) == ("ben", 2)
    assert place.decisions[barrier.epoch] == decided
    said = report(child)
    assert said["left"]
    assert "fenced" in said["log"]
    place.assert_consistent()


def test_sigterm_hands_over_without_waiting_for_a_lease(place: Place) -> None:
    child = place.child("ann", config=LONG)
    place.until_leads("ann")
    place.node("ben", LONG)
    place.until_seated("ann", "ben")
    place.until_epochs(1)
    assert report(child)["left"]
    place.until_seated("ben")
    place.until_epochs(1)
    assert [term.how for term in place.control.terms] == ["first", "handed over"]
    place.assert_consistent()

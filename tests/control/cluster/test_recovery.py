"""What a leader left behind when it died, at every point: the next one finishes it or gives it up."""

from __future__ import annotations

import pytest

from penstock.control.cluster import leader
from penstock.control.cluster.rules.model import Outcome
from tests.control.cluster.support import World

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


class Died(BaseException):
    """Stands for the death of the process at a point."""


def die_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def reach(name: str) -> None:
        if name == point:
            raise Died

    monkeypatch.setattr(leader, "reach", reach)


LEFT = {
    "epoch.prepared": ABORT,
    "epoch.deciding": ABORT,
    "epoch.decided": COMMIT,
    "epoch.published": COMMIT,
}


@pytest.mark.parametrize("point", LEFT)
@pytest.mark.parametrize("gone", [True, False], ids=["dead", "restarted"])
def test_the_next_leader_ends_what_was_begun(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, gone: bool
) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    with monkeypatch.context() as broken:
        die_at(broken, point)
        with pytest.raises(Died):
            ann.epoch()
    if gone:
        ann.die()
    world.take_over(ben).duties.step()
    world.take_part()
    assert world.decisions[2].outcome is LEFT[point]
    assert (2 in world.scope.aborted) == (LEFT[point] is ABORT)
    assert world.scope.open is None
    expected = "committed 2" if LEFT[point] is COMMIT else "aborted 2"
    for instance in world.instances:
        told = [line for line in instance.participant.log if line in ("committed 2", "aborted 2")]
        assert told == ([expected] if "epoch 2" in instance.participant.log else [])
    after = ben.epoch()
    assert after.epoch == (4 if gone else 3)
    assert after.outcome is COMMIT
    if not gone:
        world.assert_consistent()


@pytest.mark.parametrize("point", ["rotate.before", "rotate.after"])
def test_the_next_leader_goes_on_with_a_rotation(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    ann, ben, _ = world.instances
    ann.epoch()
    world.join("dan")
    with monkeypatch.context() as broken:
        die_at(broken, point)
        with pytest.raises(Died):
            ann.duties.step()
    drained = world.scope.committed
    world.take_over(ben).duties.step()
    assert world.scope.committed == drained, "what was drained was drained again"
    assert (world.control.assignment.version, "dan" in world.owners) == (2, True)
    ben.epoch()
    world.assert_consistent()
    world.join("eve")
    ben.duties.step()
    assert [snapshot.version for snapshot in world.assignments] == [1, 2, 3], "a hole in the history"

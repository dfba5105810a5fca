"""A leader prunes no decision that a stream's log has not taken over."""

from __future__ import annotations

from tests.control.cluster.support import CONFIG, SCOPE, World


def test_decisions_that_are_needed_outlast_the_history() -> None:
    world = World("ann", "ben")
    ann = world.instances[0].leads()
    needed = 1
    ann.duties._kept = {SCOPE: lambda: needed}
    ann.duties.step()

    def drive(epochs: int) -> None:
        for _ in range(epochs):
            ann.epoch()
            world.renew()

    drive(60)
    assert sorted(world.decisions) == list(range(1, 61))
    needed = 50
    drive(32)
    assert sorted(world.decisions) == list(range(50, 93))
    needed = 1000
    drive(32)
    assert len(world.decisions) <= CONFIG.history + 16
    world.take_part()
    assert world.scope.committed == 124

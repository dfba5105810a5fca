from __future__ import annotations

import pytest

from penstock.control.cluster import node
from tests.control.cluster.support import World


@pytest.fixture
def world() -> World:
    """Three members; ann leads and has assigned everything."""
    world = World("ann", "ben", "cyd")
    world.instances[0].leads().duties.step()
    return world


@pytest.fixture
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes in this process wait less between two steps."""
    monkeypatch.setattr(node, "_PAUSE", 0.05)
    monkeypatch.setattr(node, "_WATCH", 0.1)

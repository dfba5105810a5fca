"""The control document as a room remembers it."""

from __future__ import annotations

import pytest

from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.rules.commands import Acquire
from penstock.control.cluster.rules.machine import ControlAccepted, ControlRefused, Why
from penstock.errors import StoreUnavailable
from penstock.store.memory import MemoryStore

KEYS = Keys("test")


def test_a_refusal_never_comes_from_memory() -> None:
    store = MemoryStore()
    ann, ben = Room(store, KEYS), Room(store, KEYS)
    assert isinstance(ann.submit(Acquire("ann#1", "ann", 5.0))[1], ControlAccepted)
    assert ben.submit(Acquire("ben#1", "ben", 5.0))[1] == ControlRefused(Why.HELD)
    control, answer = ben.submit(Acquire("ben#1", "ben", 5.0, expired=(1, 1)))
    assert (answer, control.lease.token) == (ControlAccepted(), 2)
    # Ann still remembers that she leads; the store does not.
    assert ann.newest.lease.member == "ann"
    assert ann.submit(Acquire("ann#1", "ann", 5.0))[1] == ControlRefused(Why.HELD)
    assert ann.newest.lease.member == "ben"


def test_a_store_that_went_back_is_noticed_once_and_then_believed() -> None:
    room = Room(MemoryStore(), KEYS)
    for _ in range(3):
        room.submit(Acquire("ann#1", "ann", 5.0))
    room.store = MemoryStore()
    with pytest.raises(StoreUnavailable, match="went back"):
        room.read()
    assert room.read().lease.token == 0
    control, answer = room.submit(Acquire("ben#1", "ben", 5.0))
    assert (answer, control.lease.token) == (ControlAccepted(), 1)

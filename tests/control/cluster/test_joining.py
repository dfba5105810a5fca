"""Coming and going when ids are taken, answers get lost or the store is gone."""

from __future__ import annotations

import pytest

from penstock.config import ClusterConfig
from penstock.control.cluster.node import Node
from penstock.control.cluster.participant import Bystander
from penstock.control.cluster.rules.model import Control, Member
from penstock.errors import StoreUnavailable, UsageError
from penstock.store.base import Document, Session
from penstock.store.memory import MemoryStore
from tests.control.cluster.nodes import LONG, Cluster
from tests.control.cluster.support import KEYS, until

pytestmark = pytest.mark.usefixtures("lively")


class Counted(MemoryStore):
    """Knows how many sessions are open, and can lose the answers to joining."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Session] = []
        self.losing = 0

    def session(self, ttl: float) -> Session:
        self.opened.append(super().session(ttl))
        return self.opened[-1]

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        answer = super().cas(key, expected, value)
        if self.losing and key.startswith(KEYS.members):
            self.losing -= 1
            raise StoreUnavailable
        return answer

    def living(self) -> int:
        return len(self.alive([session.id for session in self.opened]))


def test_a_second_instance_under_the_same_id_waits_its_turn() -> None:
    store = Counted()
    cluster = Cluster(lambda: store)
    try:
        first = cluster.start("ann", config=LONG)
        cluster.until_seated("ann")
        second = cluster.start("ann", config=LONG)
        until(lambda: len(store.opened) >= 3, "the second one tries again")
        assert second.session is None
        assert store.living() <= 2, "each try leaves a session behind"
        assert first.leave()
        until(lambda: second.session, "the second one gets in")
        cluster.until_seated("ann")
    finally:
        cluster.close()


def test_a_join_whose_answer_was_lost_is_no_stranger() -> None:
    """The entry of the first try would keep the id for a whole ttl."""
    store = Counted()
    store.losing = 2
    cluster = Cluster(lambda: store)
    try:
        cluster.start("ann", config=LONG)
        cluster.until_seated("ann")
        assert store.living() == 1
    finally:
        cluster.close()


def test_to_leave_while_the_store_is_gone_says_so() -> None:
    class Fragile(MemoryStore):
        gone = False

        def get(self, key: str) -> Document | None:
            if self.gone:
                raise StoreUnavailable
            return super().get(key)

    store = Fragile()
    cluster = Cluster(lambda: store)
    node = cluster.start("ann")
    cluster.until_seated("ann")
    store.gone = True
    assert not node.leave(timeout=0.5)
    assert (node.session, node.leadership) == (None, None)
    assert cluster.participants["ann"].log[-1] == "fenced"
    store.gone = False
    cluster.close()


def test_a_node_that_never_got_in_can_be_stopped() -> None:
    class Dead(MemoryStore):
        def session(self, ttl: float) -> Session:
            raise StoreUnavailable

    cluster = Cluster(Dead)
    node = cluster.start("ann")
    assert node.leave(timeout=1.0)
    assert (node.session, node.leadership, node.control) == (None, None, Control())
    cluster.close()


@pytest.mark.parametrize(("member", "scope"), [("a/b", "s"), ("", "s"), ("a", "s/t"), ("a", "")])
def test_names_that_would_not_stand_apart_in_the_store_are_refused(member: str, scope: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        Node(MemoryStore(), Member(member, "", "1"), ClusterConfig(), {scope: Bystander()}, {})

"""The session of an instance: what it lets go of must come free again, whatever the store says afterwards."""

from __future__ import annotations

import pytest

from penstock.batch.runner.lease import Hold, InstanceLease
from penstock.control.claims import Board
from penstock.errors import SessionLost, StoreUnavailable
from penstock.store.base import Session
from penstock.store.memory import MemoryStore

TTL = 10.0


class Silent(MemoryStore):
    """Does not answer renewals while it is ``silent``; sessions live on, as etcd's do through an election."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.silent = False

    def session(self, ttl: float) -> Session:
        self._answer()
        return super().session(ttl)

    def extend_session(self, session: str, ttl: float) -> None:
        self._answer()
        super().extend_session(session, ttl)

    def end_session(self, session: str) -> None:
        self._answer()
        super().end_session(session)

    def _answer(self) -> None:
        if self.silent:
            raise StoreUnavailable


class Setting:
    """An instance that holds the only partition there is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.store = Silent()
        self.board = Board.register(self.store, "run", 10, 10)
        self.lost: list[Hold] = []
        self.lease = InstanceLease(
            self.store, self.board, TTL, TTL / 3, on_lost=self.lost.append, clock=lambda: self.now
        )
        self.first = self.lease.session
        [claim] = self.board.claim(self.first, "here")
        self.hold = self.lease.hold(claim)

    def reclaimed_token(self) -> int:
        [claim] = self.board.claim(self.lease.session, "here")
        return claim.token


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_a_lease_that_could_not_be_renewed_is_replaced_though_the_store_kept_it(setting: Setting) -> None:
    setting.store.silent = True
    setting.now = TTL
    setting.lease.beat()
    assert setting.lost == [setting.hold]
    with pytest.raises(SessionLost):
        setting.hold.check()
    setting.lease.beat()
    assert setting.store.alive([setting.first.id]), "the store has not heard of it"
    with pytest.raises(SessionLost):
        setting.reclaimed_token()
    setting.store.silent = False
    setting.lease.beat()
    assert not setting.store.alive([setting.first.id])
    assert setting.reclaimed_token() == 2


def test_a_claim_that_its_own_thread_gave_up_comes_free_although_the_renewal_came_through(
    setting: Setting,
) -> None:
    setting.now = TTL
    with pytest.raises(SessionLost):
        setting.hold.check()
    setting.lease.drop(setting.hold)
    setting.lease.beat()
    assert setting.reclaimed_token() == 2


def test_a_lease_that_was_renewed_in_time_is_kept(setting: Setting) -> None:
    setting.store.silent = True
    setting.now = TTL / 2
    setting.lease.beat()
    setting.store.silent = False
    setting.lease.beat()
    setting.now = TTL
    setting.hold.check()
    assert (setting.lost, setting.lease.session) == ([], setting.first)

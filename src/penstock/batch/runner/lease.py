"""Keeping claims alive from a thread of its own, and noticing when one is lost.

The store judges whether this instance's session is alive. Beside that, the instance looks at its
own monotonic clock: when it could not renew for nearly the whole lease, it stops acting before
anybody else may take over. A session of which it has once said so is never used again, also where the
store kept it: what it let go of would be held for as long as that session lives.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.control.claims import Board, Claim
from penstock.core.clocks import now
from penstock.core.ranges import Range
from penstock.errors import FencedError, PenstockError, SessionLost, StoreUnavailable
from penstock.store import Session, Store

_log = logging.getLogger(__name__)

_MARGIN = 0.9
_PAUSE = 0.25

T = TypeVar("T")


class Hold:
    """A claim in this process. Once it is lost it stays lost."""

    def __init__(self, claim: Claim, lease: InstanceLease) -> None:
        self.claim = claim
        self._lease = lease
        self._why: FencedError | None = None
        self.stop: PenstockError | None = None
        self.released = threading.Event()
        self.together: tuple[Hold, ...] = (self,)
        """The claims whose jobs are the same, this one among them."""

    @property
    def over(self) -> bool:
        """Whether nobody needs its jobs any more, nor those who have them together with it."""
        return all(hold.lost is not None or hold.stop is not None for hold in self.together)

    @property
    def lost(self) -> FencedError | None:
        return self._why

    def lose(self, why: FencedError) -> None:
        if self._why is None:
            self._why = why

    def check(self) -> None:
        """Raise if this claim must not go on."""
        if self._why is None and self._lease.stale:
            self.lose(self._lease.give_up("in time"))
        if self._why is not None:
            raise self._why
        if self.stop is not None:
            raise self.stop

    def patiently(self, call: Callable[[], T]) -> T:
        """Repeat a command while the store does not answer, for as long as the claim may be ours.

        Commands that were applied without our knowing are harmless to repeat.
        """
        while True:
            self.check()
            try:
                return call()
            except StoreUnavailable:
                self.released.wait(_PAUSE)


class InstanceLease:
    """The session of an instance and the claims that live by it."""

    def __init__(
        self,
        store: Store,
        board: Board,
        ttl: float,
        every: float,
        on_lost: Callable[[Hold], None],
        on_session: Callable[[Session], None] = lambda _: None,
        clock: Callable[[], float] = now,
    ) -> None:
        self._store = store
        self._board = board
        self._ttl = ttl
        self._every = every
        self._on_lost = on_lost
        self._on_session = on_session
        self._clock = clock
        self._lock = threading.Lock()
        self._holds: dict[Range, Hold] = {}
        self._closed = threading.Event()
        self._given_up: SessionLost | None = None
        self._renewed = clock()
        self._session = store.session(ttl)
        self._thread = threading.Thread(target=self._loop, name="penstock-lease", daemon=True)

    def __enter__(self) -> InstanceLease:
        self._on_session(self._session)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._thread.join()
        self._session.close()

    @property
    def session(self) -> Session:
        """The session to claim under: a new one after the old one was lost. `SessionLost` until there is."""
        with self._lock:
            if self._given_up is not None:
                raise self._given_up
            return self._session

    @property
    def stale(self) -> bool:
        """Whether, by this process's own clock, the lease is as good as over."""
        return self._clock() - self._renewed > self._ttl * _MARGIN

    def give_up(self, when: str) -> SessionLost:
        """Never use this session again; why not."""
        self._given_up = SessionLost(f"the lease could not be renewed {when}")
        return self._given_up

    def hold(self, claim: Claim) -> Hold:
        with self._lock:
            hold = self._holds[claim.range] = Hold(claim, self)
            if claim.session != self._session.id:
                hold.lose(SessionLost("the lease ran out while the claim was made"))
        return hold

    def drop(self, hold: Hold) -> None:
        with self._lock:
            if self._holds.get(hold.claim.range) is hold:
                del self._holds[hold.claim.range]
        hold.released.set()

    def holds(self) -> list[Hold]:
        with self._lock:
            return list(self._holds.values())

    def _loop(self) -> None:
        while not self._closed.wait(self._every):
            try:
                self.beat()
            except Exception:
                # Without this thread nobody would notice the end of the lease: it never ends before it.
                _log.exception("a renewal failed")

    def beat(self) -> None:
        """Renew once. Public so that a test can do it without a thread."""
        began = self._clock()
        try:
            self.session.keepalive()
            self._renewed = began
            lost = self._board.renew([hold.claim for hold in self.holds()])
        except SessionLost as error:
            self._lose_all(error)
            self._reopen()
            return
        except Exception as error:
            # Whatever it is, this thread goes on: without it nobody would notice the end of the lease.
            if self.stale:
                self._lose_all(self.give_up(f"for {self._ttl:g} s: {error}"))
            return
        for hold in self.holds():
            if why := lost.get(hold.claim.range):
                self._lose(hold, why)

    def _reopen(self) -> None:
        try:
            # Where the store kept it, it would go on holding what this instance let go of.
            self._session.close()
            began = self._clock()
            fresh = self._store.session(self._ttl)
        except PenstockError:
            return  # the next beat finds the old session lost again, and tries again
        with self._lock:
            self._session, self._renewed, self._given_up = fresh, began, None
        self._on_session(fresh)

    def _lose_all(self, why: FencedError) -> None:
        for hold in self.holds():
            self._lose(hold, why)

    def _lose(self, hold: Hold, why: FencedError) -> None:
        if hold.lost is None:
            hold.lose(why)
            self._on_lost(hold)

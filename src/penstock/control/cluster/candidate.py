"""Taking part in the election: watching the lease, taking it, renewing it, giving it up."""

from __future__ import annotations

from collections.abc import Callable

from penstock.config import ClusterConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.rules.commands import Acquire, Resign
from penstock.control.cluster.rules.election import Leadership, Sighting, leadership, see
from penstock.control.cluster.rules.machine import ControlAccepted
from penstock.control.cluster.rules.model import Control
from penstock.core.clocks import now, wall_clock
from penstock.errors import LeadershipLost

_TERMS = 64
"""How many past leaders are remembered at most: the control, which has them, is read all the time."""


class Candidate:
    """One session's part in the election. `step` is for one thread; `current` may be asked by any."""

    def __init__(
        self,
        room: Room,
        member: str,
        owner: str,
        config: ClusterConfig,
        clock: Callable[[], float] = now,
    ) -> None:
        self.owner = owner
        self.control = Control()
        self._room = room
        self._member = member
        self._config = config
        self._clock = clock
        self._sighting: Sighting | None = None
        self._held: Leadership | None = None
        self._renewed = 0.0
        self._standing = True

    @property
    def held(self) -> Leadership | None:
        """The leadership of this session, if it holds at this moment by this process's own clock."""
        held = self._held
        return held if held is not None and held.holds(self._clock()) else None

    def current(self) -> Leadership:
        """`held`; raises `LeadershipLost` if there is none. To be asked before every act of a leader."""
        held = self.held
        if held is None:
            raise LeadershipLost("the lease could not be renewed in time", left="nothing was written")
        return held

    def step(self, seen: Control | None = None) -> float:
        """Look at the lease, and take or renew it if that is due. Seconds until it must be done again.

        ``seen`` is a control that was just read, if there is one.
        """
        self.control = seen or self._room.read()
        now = self._clock()
        lease = self.control.lease
        self._sighting = see(self._sighting, lease, now)
        if lease.owner == self.owner:
            if not self._standing:
                self.control, _ = self._room.submit(Resign(self.owner, lease.token))
                return 0.0
            if self.held is None or now >= self._renewed + self._config.renew_every:
                self._take(None)
            return max(0.0, self._renewed + self._config.renew_every - self._clock())
        self._held = None
        if not self._standing:
            return self._config.renew_every
        if self._sighting.free(now):
            self._take((lease.token, lease.sequence))
            return 0.0
        return max(0.0, self._sighting.expires - now)

    def resign(self) -> None:
        """Stand no longer. The next `step` gives the lease up, so that the next leader need not wait."""
        self._standing = False
        self._held = None

    def _take(self, expired: tuple[int, int] | None) -> None:
        sent = self._clock()
        history = min(self._config.history, _TERMS)
        ask = Acquire(self.owner, self._member, self._config.lease_ttl, expired, wall_clock(), history)
        self.control, answer = self._room.submit(ask)
        self._sighting = see(self._sighting, self.control.lease, self._clock())
        if isinstance(answer, ControlAccepted):
            self._renewed = sent
            self._held = leadership(self.control.lease, sent)
        else:
            self._held = None

"""Who leads: seen from outside, and held from inside. Only one's own monotonic clock is ever read.

Outside, a lease has expired when its sequence has not changed for its whole ttl since *this* process first
saw it. Inside, the leader counts from the moment *before* it sent its last renewal, and stops a margin
earlier. Whoever saw that renewal saw it later than it was sent, so the leader has stopped before anyone may
take over, as long as two clocks do not differ by more than the margin within one ttl.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.cluster.rules.model import Lease

MARGIN = 0.2
"""The share of the ttl that a leader does not use."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A lease as it was when it last changed, and when this process noticed it, by its own clock."""

    lease: Lease
    since: float

    @property
    def expires(self) -> float:
        return self.since + self.lease.ttl

    def expired(self, now: float) -> bool:
        return self.expires <= now

    def free(self, now: float) -> bool:
        """Whether anyone may take it now."""
        return self.lease.owner is None or self.expired(now)


def see(before: Sighting | None, lease: Lease, now: float) -> Sighting:
    """What is known after reading ``lease``. ``now`` is taken *after* the answer came."""
    if before is not None and (before.lease.token, before.lease.sequence) == (lease.token, lease.sequence):
        return before
    return Sighting(lease, now)


@dataclass(frozen=True, slots=True)
class Leadership:
    """The right to act as leader, until a moment of this process's own clock."""

    owner: str
    token: int
    until: float

    def holds(self, now: float) -> bool:
        return now < self.until


def leadership(lease: Lease, sent: float) -> Leadership:
    """What a renewal gives that was sent at ``sent`` and accepted."""
    if lease.owner is None:
        raise ValueError("nobody holds the lease")
    return Leadership(lease.owner, lease.token, sent + lease.ttl * (1 - MARGIN))

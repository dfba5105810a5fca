"""Sessions whose store does all the work."""

from __future__ import annotations

from typing import Protocol

from penstock.errors import SessionLost
from penstock.store.base import Session


class Keeper(Protocol):
    """What keeps sessions: `extend_session` raises `SessionLost` for one that is over."""

    def extend_session(self, session: str, ttl: float) -> None: ...

    def end_session(self, session: str) -> None: ...


class KeptSession(Session):
    """A session that is nothing but its id."""

    def __init__(self, keeper: Keeper, name: str, ttl: float) -> None:
        self.id = name
        self.ttl = ttl
        self._keeper = keeper

    def keepalive(self) -> None:
        self._keeper.extend_session(self.id, self.ttl)

    def close(self) -> None:
        self._keeper.end_session(self.id)


def session_lost(ttl: float) -> SessionLost:
    """The error of whoever comes too late."""
    return SessionLost(
        f"the lease of {ttl:g} s ran out before it was renewed, or was ended",
        left="what it protected may have been taken over",
        hint="open a new session and claim again",
    )

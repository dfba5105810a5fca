"""What backends share: what may be written, sessions that are no more than an id, and forks."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Protocol

from penstock.errors import SessionLost, UsageError
from penstock.store.base import Session, Write

# Greater than every character that a key may hold, so prefix + LAST bounds the keys of a prefix.
LAST = "\U0010ffff"

MAX_DOCUMENT = 512 * 1024
"""The most bytes of a document. Most are far smaller: data goes to storage, and etcd takes 1.5 MiB."""


def check_key(key: str) -> None:
    """Raise `UsageError` unless ``key`` is non-empty and printable."""
    if not key or not key.isprintable():
        raise UsageError(f"{key!r} cannot be a key: keys are non-empty and have no control characters")


def check_writes(writes: Sequence[Write]) -> None:
    """Raise `UsageError` for a bad key, a huge value, or the deletion of what must not exist."""
    for write in writes:
        check_key(write.key)
        if write.value is not None and len(write.value) > MAX_DOCUMENT:
            raise UsageError(
                f"{write.key!r} would have {len(write.value):,} bytes, of {MAX_DOCUMENT:,} at most",
                hint="put data into storage, and its path into the store",
            )
        if write.value is None and write.expected == 0:
            raise UsageError(f"cannot delete {write.key!r} without the version that was read")


def check_ttl(ttl: float) -> None:
    """Raise `UsageError` unless a session of ``ttl`` seconds can exist."""
    if not 0 < ttl < float("inf"):
        raise UsageError(f"a session cannot live {ttl} seconds", hint="give a positive number of seconds")


class SessionKeeper(Protocol):
    """What keeps sessions: `extend_session` raises `SessionLost` for one that is over."""

    def extend_session(self, session: str, ttl: float) -> None: ...

    def end_session(self, session: str) -> None: ...


class KeptSession(Session):
    """A session that is nothing but its id."""

    def __init__(self, keeper: SessionKeeper, name: str, ttl: float) -> None:
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


class Forkable(Protocol):
    """A store that knows what to leave alone and what to make again in a forked child.

    Neither locks nor connections live through a fork.
    """

    def after_fork(self) -> None: ...


def survive_forks(store: Forkable) -> None:
    """Call ``store.after_fork`` in every child that is forked while the store is in use."""
    _stores.add(store)


def _after_fork() -> None:
    for store in _stores:
        store.after_fork()


_stores: weakref.WeakSet[Forkable] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)

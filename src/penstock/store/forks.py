"""Stores that live through a fork: neither locks nor connections do, so each starts anew in the child."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """A store that knows what to leave alone and what to make again in a forked child."""

    def after_fork(self) -> None: ...


def survive_forks(store: Forkable) -> None:
    """Call ``store.after_fork`` in every child that is forked while the store is in use."""
    _stores.add(store)


def _after_fork() -> None:
    for store in _stores:
        store.after_fork()


_stores: weakref.WeakSet[Forkable] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)

"""What stays open in a Python worker from one epoch to the next: parts of sources, readers of journals.

Spark keeps its Python workers and gives a task to any of them. A part that was suspended here goes on here
if the state that the next epoch starts from is the one it was suspended at; otherwise (another worker was
asked in between, or the epoch was given up) it is closed and built anew. So keeping parts saves time and
decides nothing.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

_log = logging.getLogger(__name__)

LEAST = 256
"""How many parts a process may keep, however few a task has."""
MOST = 8192
"""How many parts a process may keep, however many a task has."""
_ROOM = 4
_IDLE = 60.0

Key = tuple[str, str, str]
"""Stream id, source and part."""


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)
State = str | int
"""What says where a part stands."""


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    part: T
    state: State
    since: float
    weight: int


class Host(Generic[T]):
    """The suspended parts of one process, which one thread uses.

    The oldest go first when there are too many. ``weigh`` says for how many a part counts.
    """

    def __init__(
        self, most: int = LEAST, idle: float = _IDLE, weigh: Callable[[T], int] | None = None
    ) -> None:
        self._most = most
        self._idle = idle
        self._weigh = weigh or (lambda _: 1)
        self._weight = 0
        self._kept: OrderedDict[Key, _Kept[T]] = OrderedDict()

    def make_room(self, share: int) -> None:
        """Keep enough for tasks with ``share`` parts each.

        Parts are asked in turn. A host that holds fewer than are asked has always dropped the one that comes
        next; and it sees the shares of several tasks.
        """
        self._most = max(self._most, min(MOST, _ROOM * share))

    def take(self, key: Key, state: State | None) -> T | None:
        """The part that was suspended at exactly this state, if it is here."""
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._weight -= kept.weight
        if kept.state == state:
            return kept.part
        close(kept.part, key)
        return None

    def keep(self, key: Key, state: State, part: T) -> None:
        """Keep a part that was just suspended."""
        self.take(key, None)
        self._kept[key] = _Kept(part, state, time.monotonic(), self._weigh(part))
        self._weight += self._kept[key].weight
        while self._weight > self._most:
            self._drop_oldest()

    def sweep(self) -> None:
        """Close what nobody has asked for in a while: it is read elsewhere by now."""
        oldest = time.monotonic() - self._idle
        while self._kept and next(iter(self._kept.values())).since < oldest:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        key, kept = self._kept.popitem(last=False)
        self._weight -= kept.weight
        close(kept.part, key)


def close(part: Closable, key: Key) -> None:
    """Close a part; that it fails to is nobody's loss."""
    try:
        part.close()
    except Exception:
        _log.warning("part %s of %s was not closed cleanly", key[2], key[1], exc_info=True)

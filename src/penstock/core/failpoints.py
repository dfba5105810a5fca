"""Named points at which a test makes this process die or stop, exactly there.

``PENSTOCK_FAILPOINTS="ack.before=kill@2,checkpoint.saved=stop"`` kills the process with SIGKILL when
it reaches ``ack.before`` for the second time, and stops it with SIGSTOP when it first reaches
``checkpoint.saved``. Without the variable a point costs one comparison.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.errors import ConfigError

VARIABLE = "PENSTOCK_FAILPOINTS"
EXIT_CODE = 86
"""What the process ends with after the action ``exit``: no code that a command uses itself."""

_unstopped = threading.RLock()


def _stop() -> None:
    with _unstopped:
        # Sent to the thread itself: one that is sent to the process may let this thread run on a little.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


ACTIONS: dict[str, Callable[[], None]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": _stop,
    "exit": lambda: os._exit(EXIT_CODE),
}


@dataclass(frozen=True, slots=True)
class Failpoint:
    """An action, and the how-manieth reach of the point triggers it."""

    action: str
    at: int = 1
    # next() on a count is atomic, so that threads need no lock.
    _reached: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False, compare=False)

    def reach(self) -> None:
        if next(self._reached) == self.at:
            ACTIONS[self.action]()


def parse(text: str) -> dict[str, Failpoint] | None:
    """The failpoints that ``NAME=ACTION[@N],…`` describes; None when it describes none."""
    points: dict[str, Failpoint] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, rest = item.partition("=")
        action, _, count = rest.partition("@")
        if not (name and equals and action in ACTIONS and (count or "1").isdecimal() and count != "0"):
            raise ConfigError(
                f"{VARIABLE}: {item!r} is not a failpoint",
                hint=f"write NAME=ACTION or NAME=ACTION@N; actions are {', '.join(ACTIONS)}",
            )
        points[name] = Failpoint(action, int(count or 1))
    return points or None


_points: Mapping[str, Failpoint | _Watched] | None = parse(os.environ.get(VARIABLE, ""))


def reach(name: str) -> None:
    """Say that the process is at the point ``name``; does nothing unless the environment names it."""
    if _points is not None and name in _points:
        _points[name].reach()


@contextmanager
def unstopped() -> Iterator[None]:
    """In the block, the action ``stop`` of another thread waits: for locks that other processes wait for.

    A signal stops all threads. If one of them held the lock of the store by chance, a test would show that
    the store is blocked, and not what it is about. A point inside the block stops the process all the same.
    """
    if _points is None:
        yield
        return
    with _unstopped:
        yield


@contextmanager
def armed(actions: Mapping[str, Callable[[], object]]) -> Iterator[list[str]]:
    """In the block, call a function whenever this process comes to its point; gives the names, as reached.

    For tests in one process: an action that raises ends what it interrupts. It is not for several threads
    that arm points at once.
    """
    global _points  # noqa: PLW0603
    before, reached = _points, []

    def watch(name: str, act: Callable[[], object]) -> _Watched:
        def call() -> None:
            reached.append(name)
            act()

        return _Watched(call)

    _points = {**(before or {}), **{name: watch(name, act) for name, act in actions.items()}}
    try:
        yield reached
    finally:
        _points = before


@dataclass(frozen=True, slots=True)
class _Watched:
    """A point at which a test acts."""

    reach: Callable[[], None]

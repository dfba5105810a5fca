"""Who computes for a coordinator: pure rules about workers that come, are heard of, fall silent and leave.

Time is the coordinator's own monotonic clock, passed in. A worker that comes back under its id is another
one: its number tells them apart, so that what a former life sends late changes nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from penstock.core.names import RULE, is_name
from penstock.errors import UsageError


class Life(enum.StrEnum):
    """How it is with a worker."""

    ALIVE = "alive"
    DEAD = "dead"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker says of itself when it asks to be let in."""

    id: str
    host: str
    cores: int
    memory: str
    version: str


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as its coordinator knows it. ``heard`` is when it last spoke; ``joined`` is for people."""

    offer: Offer
    number: int
    heard: float
    joined: str = ""
    life: Life = Life.ALIVE


class Workers:
    """The workers of one coordinator. Not for several threads at once."""

    def __init__(self, dead_after: float) -> None:
        self._dead_after = dead_after
        self._known: dict[str, Worker] = {}
        self._number = 0

    @property
    def all(self) -> tuple[Worker, ...]:
        """Every one that ever came, by id."""
        return tuple(self._known[name] for name in sorted(self._known))

    def join(self, offer: Offer, now: float, joined: str = "") -> Worker:
        """Let a worker in. Raises `UsageError` if its id is that of another one that lives elsewhere."""
        if not is_name(offer.id):
            raise UsageError(f"{offer.id!r} cannot be the id of a worker", hint=RULE)
        known = self._known.get(offer.id)
        if known and self._lives(known, now) and known.offer.host != offer.host:
            raise UsageError(
                f"there is a worker {offer.id} already, on {known.offer.host}",
                hint="give this one another cluster.worker_id, or wait until the other one is taken for dead",
            )
        self._number += 1
        self._known[offer.id] = Worker(offer, self._number, now, joined)
        return self._known[offer.id]

    def beat(self, name: str, number: int, now: float) -> bool:
        """A worker says that it lives. False: it must join again, for it is not known under this number."""
        worker = self._known.get(name)
        if worker is None or worker.number != number or not self._lives(worker, now):
            return False
        self._known[name] = replace(worker, heard=now)
        return True

    def leave(self, name: str, number: int) -> None:
        """A worker says that it goes."""
        worker = self._known.get(name)
        if worker is not None and worker.number == number:
            self._known[name] = replace(worker, life=Life.LEFT)

    def sweep(self, now: float) -> tuple[Worker, ...]:
        """Those that are taken for dead from now on."""
        silent = [worker for worker in self.all if worker.life is Life.ALIVE and not self._lives(worker, now)]
        for worker in silent:
            self._known[worker.offer.id] = replace(worker, life=Life.DEAD)
        return tuple(self._known[worker.offer.id] for worker in silent)

    def _lives(self, worker: Worker, now: float) -> bool:
        return worker.life is Life.ALIVE and now - worker.heard < self._dead_after

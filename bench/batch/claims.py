"""(d) How many partitions can be claimed and acked per second, and whether many of them slow that down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Literal

import penstock as ps
from bench import claiming
from bench.claiming import DIGEST, Load
from bench.lab import Lab
from bench.measuring import compare, say
from bench.results import Result
from penstock.control.claims import Board
from penstock.store import Session, Store

SECONDS = 2.0
QUEUED = 400_000
FEW, MANY = 1_000, (100_000, 1_000_000)
FLAT = 1.5
LEFT = 500
CLAIMS = 300
FILLING = 4_096
_TTL = 3600.0


def run(lab: Lab) -> Iterator[Result]:
    for processes in (1, 4):
        for batch in (1, 16):
            yield compare(
                f"(d) claim + ack, {_processes(processes)}, {batch} at a time (per second; more is better)",
                lambda p=processes, b=batch: _rate(lab, "ours", p, b),  # type: ignore[misc]
                lambda p=processes, b=batch: _rate(lab, "peer", p, b),  # type: ignore[misc]
                repeat=lab.repeat,
                warm_up=False,
            )
    for partitions in MANY:
        for done in (False, True):
            yield from _cost(lab, partitions, done=done)


def _processes(count: int) -> str:
    return f"{count} process{'es' if count > 1 else ''}"


def _rate(lab: Lab, side: Literal["ours", "peer"], processes: int, batch: int) -> float:
    with lab.place(f"claims-{side}") as place:
        target = place.store if side == "ours" else f"workqueue:{place.path / 'queue.db'}"
        load = Load(target, QUEUED, processes, batch, SECONDS)
        claiming.prepare(load)
        return claiming.rate(load)


def _cost(lab: Lab, partitions: int, *, done: bool) -> Iterator[Result]:
    """The cost of a claim among many partitions over that among few, both untouched or mostly done."""
    state = f"all but {LEFT} done" if done else "none done"
    with ExitStack() as stack:
        sides = []
        for count in (partitions, FEW):
            place = stack.enter_context(lab.place(f"claims-{count}"))
            store = stack.enter_context(ps.open_store(place.store))
            sides.append(Claimer(store, count, done=done))
        many, few = sides
        yield compare(
            f"(d) a claim among {partitions:,} ÷ {FEW:,} partitions, {state} (µs)",
            many.claim,
            few.claim,
            repeat=lab.repeat,
            goal=FLAT,
        )
        yield compare(
            f"(d) first claim of a new instance, {partitions:,} ÷ {FEW:,} partitions, {state} (µs)",
            many.first_claim,
            few.first_claim,
            repeat=lab.repeat,
            goal=FLAT,
        )


class Claimer:
    """Claims partitions one at a time, and gives them back where the clock does not see it."""

    def __init__(self, store: Store, partitions: int, *, done: bool) -> None:
        self._store = store
        self._session: Session = store.session(_TTL)
        self._board = Board.register(store, claiming.RUN, partitions, 1)
        self._names = 0
        if done:
            say(f"(d) completing {partitions - LEFT:,} partitions")
            self._complete(partitions - LEFT)

    def _complete(self, count: int) -> None:
        while count:
            claims = self._board.claim(self._session, "filler", min(count, FILLING))
            self._board.ack_many([(claim, DIGEST) for claim in claims])
            count -= len(claims)

    def claim(self) -> float:
        """Microseconds for a claim by an instance that is at work: the median of many."""
        return median(self._timed(self._board, "worker") for _ in range(CLAIMS))

    def first_claim(self) -> float:
        """Microseconds for the first claim of an instance that just opened the board."""
        return median(self._timed(Board.open(self._store, claiming.RUN), self._name()) for _ in range(20))

    def _name(self) -> str:
        self._names += 1
        return f"instance-{self._names}"

    def _timed(self, board: Board, owner: str) -> float:
        began = time.perf_counter()
        claims = board.claim(self._session, owner)
        seconds = time.perf_counter() - began
        for claim in claims:
            board.release(claim)
        if len(claims) != 1:
            raise RuntimeError(f"claimed {len(claims)} partitions, not one")
        return seconds * 1e6

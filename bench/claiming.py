"""Processes that do nothing but claim and ack, for a given time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import penstock as ps
from bench.pgqueue import PgQueue
from bench.workqueue import WorkQueue
from penstock.control.claims import Board

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

RUN = "claims"
DIGEST = "0123456789abcdef" * 4
TTL = 60.0
_QUEUE = "workqueue:"

Step = Callable[[], int]
"""Claims some partitions and acks them; how many there were."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured: where, by how many processes, how many partitions at a time.

    ``target`` is the URL of a store of ours, or of a peer: ``workqueue:PATH`` or ``postgresql://…``.
    """

    target: str
    partitions: int
    processes: int
    batch: int
    seconds: float


def prepare(load: Load) -> None:
    queue = _peer(load.target)
    if queue is None:
        with ps.open_store(load.target) as store:
            Board.register(store, RUN, load.partitions, 1)
        return
    queue.fill(load.partitions)
    queue.close()


def rate(load: Load) -> float:
    """Partitions claimed and acked per second, by all processes together."""
    context = get_context("spawn")
    barrier = context.Barrier(load.processes)
    answers: Queue[tuple[int, float, float]] = context.Queue()
    workers = [
        context.Process(target=_work, args=(load, number, barrier, answers))
        for number in range(load.processes)
    ]
    for worker in workers:
        worker.start()
    told = [answers.get(timeout=load.seconds + 120) for _ in workers]
    for worker in workers:
        worker.join()
    # CLOCK_MONOTONIC is one clock for all processes of a machine.
    return sum(n for n, _, _ in told) / (max(end for _, _, end in told) - min(begin for _, begin, _ in told))


def _work(load: Load, number: int, barrier: Barrier, answers: Queue[tuple[int, float, float]]) -> None:
    queue = _peer(load.target)
    owner = f"worker-{number}"
    step = _ours(load, owner) if queue is None else _theirs(queue, load, owner)
    barrier.wait(60)
    began = time.monotonic()
    done = 0
    while time.monotonic() < began + load.seconds and (some := step()):
        done += some
    answers.put((done, began, time.monotonic()))


def _ours(load: Load, owner: str) -> Step:
    store = ps.open_store(load.target)
    board = Board.open(store, RUN)
    session = store.session(TTL)

    def step() -> int:
        claims = board.claim(session, owner, load.batch)
        if lost := board.ack_many([(claim, DIGEST) for claim in claims]):
            raise RuntimeError(f"claims were lost: {lost}")
        return len(claims)

    return step


def _peer(target: str) -> PgQueue | WorkQueue | None:
    if target.startswith("postgresql:"):
        return PgQueue(target)
    return WorkQueue(Path(target.removeprefix(_QUEUE))) if target.startswith(_QUEUE) else None


def _theirs(queue: PgQueue | WorkQueue, load: Load, owner: str) -> Step:
    def step() -> int:
        items = queue.claim(owner, TTL, load.batch)
        queue.ack(items, owner, DIGEST)
        return len(items)

    return step

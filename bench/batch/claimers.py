"""Processes that do nothing but claim and ack, for a given time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import penstock as ps
from bench.batch.workqueue import WorkQueue
from penstock.claims import Board

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

RUN = "claims"
DIGEST = "0123456789abcdef" * 4
TTL = 60.0

Step = Callable[[], int]
"""Claims some partitions and acks them; how many there were."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured: on which side, by how many processes, how many partitions at a time."""

    side: Literal["ours", "peer"]
    folder: Path
    partitions: int
    processes: int
    batch: int
    seconds: float


def prepare(load: Load) -> None:
    if load.side == "ours":
        with ps.open_store(url(load.folder)) as store:
            Board.register(store, RUN, load.partitions, 1)
        return
    queue = WorkQueue(load.folder / "queue.db")
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


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'store.db'}"


def _work(load: Load, number: int, barrier: Barrier, answers: Queue[tuple[int, float, float]]) -> None:
    step = (_ours if load.side == "ours" else _peer)(load, f"worker-{number}")
    barrier.wait(60)
    began = time.monotonic()
    done = 0
    while time.monotonic() < began + load.seconds and (some := step()):
        done += some
    answers.put((done, began, time.monotonic()))


def _ours(load: Load, owner: str) -> Step:
    store = ps.open_store(url(load.folder))
    board = Board.open(store, RUN)
    session = store.session(TTL)

    def step() -> int:
        claims = board.claim(session, owner, load.batch)
        if lost := board.ack_many([(claim, DIGEST) for claim in claims]):
            raise RuntimeError(f"claims were lost: {lost}")
        return len(claims)

    return step


def _peer(load: Load, owner: str) -> Step:
    queue = WorkQueue(load.folder / "queue.db")

    def step() -> int:
        items = queue.claim(owner, TTL, load.batch)
        queue.ack(items, owner, DIGEST)
        return len(items)

    return step

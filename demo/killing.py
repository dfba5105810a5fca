"""Killing an instance at a moment that matters."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from demo.ledger import Ledger
from penstock.batch.runs import runs
from penstock.control.claims import PartitionState, PartitionView
from penstock.errors import PenstockError
from penstock.store import Store
from penstock.workers.run_instances import RunChild, RunSupervisor

# Part of the partitions that is done when the killing begins; later, nobody is waited for any more.
_MIDDLE, _LATE = 0.3, 0.6
_LOOK_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Death:
    """Who was killed, and what it held at that moment according to the store."""

    instance: str
    pid: int
    seconds: float
    """Since the run began."""
    done: int
    """Partitions that were published by then, by anybody."""
    held: tuple[PartitionView, ...]


def kill_in_the_middle(
    supervisor: RunSupervisor,
    ledger: Ledger,
    store: Store,
    run: str,
    partitions: int,
    look: Callable[[], None],
) -> Death | None:
    """Kill the first instance that is found with a saved checkpoint of unfinished work.

    None if the run ended before there was such a moment. ``look`` is called all the time.
    """
    began = time.monotonic()
    while not supervisor.wait(_LOOK_EVERY):
        look()
        done = ledger.done / partitions
        together = all(ledger.has_worked(i.name) for i in supervisor.instances)
        if done < _MIDDLE or not (together or done >= _LATE):
            continue
        for instance in supervisor.instances:
            if any(ledger.held(instance.name).values()) and (held := _strike(instance, store, run)):
                return Death(instance.name, instance.pid, time.monotonic() - began, ledger.done, held)
    return None


def _strike(instance: RunChild, store: Store, run: str) -> tuple[PartitionView, ...]:
    """Stop the process, look at what it holds, and kill it only if there is a checkpoint to resume from."""
    os.kill(instance.pid, signal.SIGSTOP)
    try:
        claimed = runs.board(store, run).partitions({PartitionState.CLAIMED})
        held = tuple(view for view in claimed if view.owner == instance.name)
    except PenstockError:
        os.kill(instance.pid, signal.SIGCONT)
        raise
    if any(view.checkpoints for view in held):
        os.kill(instance.pid, signal.SIGKILL)
        return held
    os.kill(instance.pid, signal.SIGCONT)
    return ()

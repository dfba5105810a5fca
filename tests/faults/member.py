"""A member that counts, as a process of its own: ``python -m tests.faults.member NAME FOLDER URL``.

What it asks of the store and is told goes to ``NAME.history``, what it does to ``NAME.log``, line by line, so
that nothing is missing when it is killed.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.config import ClusterConfig
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.leader import steady
from penstock.control.cluster.node import Node
from penstock.control.cluster.participant import EpochWork, Participant
from penstock.control.cluster.rules.assignment import part_owners
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Decision, Member, Snapshot
from penstock.core import clocks, failpoints
from penstock.store.base import Store, Write
from penstock.store.etcd import EtcdStore
from tests.faults.history import Recorder

# Nothing is pruned, so that a test can read all that was decided.
CONFIG = ClusterConfig(
    "faults", vnodes=16, lease_ttl=2.0, renew_every=0.7, member_ttl=4.0, barrier_timeout=3.0, history=10_000
)
KEYS = Keys(CONFIG.name)
SCOPE = "counts"
PARTS = tuple(f"p{i}" for i in range(6))
_EPOCH_EVERY = 0.1
_LOOK_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Entry:
    """What a member did, and when by CLOCK_MONOTONIC in nanoseconds, which is one for all processes."""

    at: int
    what: str
    more: Mapping[str, Any]


def history_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.history"


def log_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.log"


def trap_path(folder: Path, name: str) -> Path:
    """While this file is there, the member stops right before it writes a decision, once."""
    return folder / f"{name}.trap"


def read_log(folder: Path, name: str) -> list[Entry]:
    """What the member has done so far; the line that it writes at this moment is left out."""
    path = log_path(folder, name)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [_entry(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _entry(line: str) -> Entry:
    found = json.loads(line)
    return Entry(found.pop("at"), found.pop("what"), found)


class Log:
    """Writes entries; safe for use by many threads."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("x", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()

    def say(self, what: str, **more: Any) -> None:
        with self._lock:
            line = json.dumps({"at": time.monotonic_ns(), "what": what, **more})
            self._file.write(line + "\n")


class Trapped(Recorder):
    """A recorder that stops its process where a leader that sleeps could do most harm."""

    def __init__(self, store: Store, path: Path, trap: Path) -> None:
        super().__init__(store, path)
        self._trap = trap

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        if any(write.key.startswith(KEYS.epochs(SCOPE)) for write in writes) and self._trap.exists():
            self._trap.unlink()
            failpoints.ACTIONS["stop"]()
        return super().cas_many(writes)


class Counter(Participant):
    """Adds one to each of its parts in every ordinary epoch, and nothing in a drain.

    So each part's committed state is the number of ordinary epochs that were committed, whoever owned it.
    """

    def __init__(self, member: str, log: Log) -> None:
        self._member = member
        self._log = log
        self._counts: dict[str, int] = {}
        self._ahead: dict[str, int] = {}

    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        states: Mapping[str, str] = committed.states if committed else {}
        owners = part_owners(snapshot, SCOPE, PARTS)
        self._counts = {part: int(states.get(part, 0)) for part in PARTS if owners.get(part) == self._member}
        epoch = committed.epoch if committed else 0
        self._log.say("assigned", version=snapshot.version, epoch=epoch, states=self._counts)

    def prepare(self, barrier: Barrier) -> EpochWork:
        step = 1 if barrier.kind is BarrierKind.EPOCH else 0
        self._ahead = {part: count + step for part, count in self._counts.items()}
        self._log.say("prepared", epoch=barrier.epoch, states=self._ahead)
        states = {part: str(count) for part, count in self._ahead.items()}
        watermark = min(self._ahead.values(), default=None)
        return EpochWork(states, files=(f"{self._member}/{barrier.epoch}",), watermark=watermark)

    def committed(self, epoch: int) -> None:
        self._counts = self._ahead
        self._log.say("committed", epoch=epoch)

    def aborted(self, epoch: int) -> None:
        self._log.say("aborted", epoch=epoch)

    def fenced(self) -> None:
        self._counts = {}
        self._log.say("fenced")


def main(name: str, folder: str, url: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    place = Path(folder)
    log = Log(log_path(place, name))
    store = Trapped(EtcdStore.open(url), history_path(place, name), trap_path(place, name))
    node = Node(
        store, Member(name, "", "1"), CONFIG, {SCOPE: Counter(name, log)}, {SCOPE: steady(_EPOCH_EVERY)}
    )
    node.start()
    held = None
    while True:
        if (now := node.leadership) != held:
            held = now
            if held is None:
                log.say("follows")
            else:
                left = round((held.until - clocks.now()) * 1e9)
                log.say("leads", token=held.token, until=time.monotonic_ns() + left)
        time.sleep(_LOOK_EVERY)


if __name__ == "__main__":
    main(*sys.argv[1:])

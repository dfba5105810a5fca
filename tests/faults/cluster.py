"""Three members as processes on a real etcd, which a test can stop, cut off and listen to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.rules.model import BarrierKind, Control, Decision, Outcome
from penstock.errors import StoreUnavailable
from penstock.store.etcd import EtcdStore
from servers.etcd import EtcdCluster
from servers.netns import Network
from tests.faults.chronicle import Chronicle
from tests.faults.history import Recorder, merged
from tests.faults.member import KEYS, SCOPE, Entry, history_path, read_log, trap_path
from tests.faults.workload import until

NAMES = ("ann", "ben", "cyd")
# How long etcd and the members may take to find to each other again, on a busy machine.
SOON = 30.0
_ROOT = Path(__file__).parents[2]
T = TypeVar("T")


class Cluster:
    """Members on a store called like ``folder``. With a network, each has a namespace after those of etcd."""

    def __init__(self, etcd: EtcdCluster, folder: Path, network: Network | None = None) -> None:
        self._folder = folder
        self._network = network
        self._endpoints = etcd.endpoints
        self._store = EtcdStore(self._endpoints, folder.name)
        self._eye = Recorder(self._store)
        self._room, self._records = Room(self._eye, KEYS), Records(self._eye, KEYS)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> Self:
        """Start the members, and wait until all have a seat and epochs are committed."""
        for number, name in enumerate(NAMES):
            self._processes[name] = self._launch(number, name)
        self.until_seated(*NAMES)
        self.until_epochs(2)
        return self

    def _launch(self, number: int, name: str) -> subprocess.Popen[bytes]:
        # Everybody asks another node first, so that leader and followers of etcd all have clients.
        order = self._endpoints[number:] + self._endpoints[:number]
        url = f"etcd://{','.join(order)}/{self._folder.name}"
        command = [sys.executable, "-m", "tests.faults.member", name, str(self._folder), url]
        with (self._folder / f"{name}.err").open("wb") as errors:
            if self._network is not None:
                return self._network.run(len(self._endpoints) + number, command, cwd=_ROOT, stderr=errors)
            return subprocess.Popen(command, cwd=_ROOT, stderr=errors)

    # what is done to members

    def stop_before_it_decides(self, name: str) -> None:
        """Stop the leader when all acks are there and it is about to commit the epoch."""
        trap_path(self._folder, name).touch()
        until(lambda: self._state(name) == "T", SOON, f"{name} stops")

    def resume(self, name: str) -> None:
        os.kill(self._processes[name].pid, signal.SIGCONT)

    def cut_off(self, name: str) -> None:
        """Nothing gets from the member to etcd or back, until the network is healed."""
        assert self._network is not None
        self._network.cut(len(self._endpoints) + NAMES.index(name))

    def _state(self, name: str) -> str:
        """The process state as the kernel tells it: T is stopped."""
        stat = Path(f"/proc/{self._processes[name].pid}/stat").read_text()
        return stat.rsplit(")", 1)[1].split()[0]

    # what is seen of them

    @property
    def control(self) -> Control:
        return _patiently(self._room.read)

    def log(self, name: str, since: int = 0) -> list[Entry]:
        return [entry for entry in read_log(self._folder, name) if entry.at >= since]

    def until_logged(self, name: str, what: str, since: int) -> Entry:
        """The first such entry after ``since``."""
        until(lambda: any(e.what == what for e in self.log(name, since)), SOON, f"{name} is {what}")
        return next(entry for entry in self.log(name, since) if entry.what == what)

    def until_seated(self, *names: str) -> Control:
        """Wait until an ordinary epoch was committed under an assignment that has just these seats."""
        until(lambda: self._works(names), SOON, f"{', '.join(names)} work")
        return self.control

    def _works(self, names: tuple[str, ...]) -> bool:
        control = self.control
        decision = self._decision(control.scope(SCOPE).committed)
        return (
            decision is not None
            and decision.kind is BarrierKind.EPOCH
            and decision.assignment == control.assignment.version
            and tuple(seat.member for seat in control.assignment.seats) == names
        )

    def until_epochs(self, count: int) -> None:
        """Wait until so many more epochs are committed."""
        last = self.control.scope(SCOPE).committed
        until(lambda: self._commits_after(last) >= count, SOON, f"{count} more epochs")

    def _commits_after(self, epoch: int) -> int:
        decisions = map(self._decision, range(epoch + 1, self.control.scope(SCOPE).committed + 1))
        return sum(each is not None and each.outcome is Outcome.COMMIT for each in decisions)

    def _decision(self, epoch: int) -> Decision | None:
        return _patiently(lambda: self._records.decision(SCOPE, epoch))

    # the end

    def chronicle(self) -> Chronicle:
        """Kill everybody. All that was ever written for this cluster, after it was checked."""
        self._kill()
        found = Chronicle(
            self._store,
            {name: merged([history_path(self._folder, name)]) for name in NAMES},
            {name: self.log(name) for name in NAMES},
            self._eye.history(),
        )
        found.verify()
        return found

    def _kill(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._kill()
            self._store.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        self._store.close()


def _patiently(ask: Callable[[], T]) -> T:
    """The answer, also where etcd takes long to have a leader again."""
    deadline = time.monotonic() + SOON
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise

"""The role *coordinator*: one of several leads. It runs Spark's master and driver; the others stand by.

Coordinators are a cluster of their own in the store, with the same lease and fencing as any. Whoever leads
lets in clients and workers, and sends them away before another one may lead: a lost lease is known by the
own clock, without the store.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock import __version__
from penstock.config import Config
from penstock.control.cluster.node import Node
from penstock.control.cluster.rules.model import Member
from penstock.errors import FencedError, PenstockError, TransientError, UsageError
from penstock.server.process.service import Service
from penstock.server.process.switch import EngineSwitch
from penstock.server.roles import processes
from penstock.server.roles.views import ROLE, own_cluster
from penstock.server.roles.worker_admission import WorkerAdmission
from penstock.server.roles.worker_records import WorkerBoard
from penstock.store.base import Store

_log = logging.getLogger(__name__)

_LOOK_EVERY = 0.1
_SWEEP_EVERY = 1.0
_AGAIN = 2.0
_TRIES = 3


@dataclass(slots=True)
class _Term:
    """What a coordinator has while it leads."""

    master: processes.SparkProcess | None
    service: Service


class Coordinator:
    """One coordinator from its start to its end.

    ``serve`` makes the service for a Spark master with settings that it needs. ``own_master`` False: the
    configuration names a Spark that is there already, and nothing of Spark's own is started but the driver.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        switch: EngineSwitch,
        admission: WorkerAdmission,
        folder: Path,
        serve: Callable[[str, Mapping[str, str]], Service],
        tell: Callable[[str], None],
        *,
        name: str,
        addresses: Mapping[str, str],
        own_master: bool,
    ) -> None:
        self._config = config
        self._store = store
        self._switch = switch
        self._admission = admission
        self._folder = folder
        self._serve = serve
        self._tell = tell
        self._own_master = own_master
        self._stopping = threading.Event()
        # One for all JVMs of this process: workers that were let in know no other.
        self._secret = secrets.token_hex(32)
        member = Member(name, "", __version__, addresses=addresses, role=ROLE)
        self._node = Node(store, member, own_cluster(config.cluster), {}, {})

    def stop(self) -> None:
        """Leave: `run` returns soon."""
        self._stopping.set()

    def run(self) -> None:
        """Stand for election, and serve whenever this coordinator leads."""
        self._join()
        self._node.start()
        told, failures = "", 0
        try:
            while not self._stopping.is_set():
                leadership = self._node.leadership
                if leadership is None:
                    told = self._stand_by(told)
                    self._stopping.wait(_LOOK_EVERY)
                    continue
                told = ""
                try:
                    self._lead(leadership.token)
                    failures = 0
                except (TransientError, FencedError) as error:
                    self._tell(f"cannot lead: {error}")
                    failures += 1
                    if failures == _TRIES:
                        raise  # somebody else may be able to
                    self._stopping.wait(_AGAIN)
        finally:
            self._node.leave()

    def _join(self) -> None:
        """Become a member. One that died a moment ago keeps its name until its session has run out."""
        deadline = time.monotonic() + self._config.cluster.member_ttl + _AGAIN
        while True:
            try:
                self._node.pulse()
                return
            except UsageError:
                if time.monotonic() > deadline or self._stopping.wait(_LOOK_EVERY):
                    raise

    def _stand_by(self, told: str) -> str:
        lease = self._node.control.lease
        leader = lease.member if lease.owner else "nobody yet"
        if leader != told:
            self._switch.shut(f"this coordinator stands by: {leader} leads")
            self._tell(f"standing by; leader: {leader}")
        return leader

    def _lead(self, token: int) -> None:
        self._tell(f"leading with token {token}")
        self._switch.shut("the coordinator is starting up")
        folder = processes.working_folder(self._folder, "coordinator")
        term: _Term | None = None
        try:
            term = self._begin(folder, token)
            self._watch(token, term)
        finally:
            self._switch.shut("this coordinator does not lead any more")
            self._admission.close()
            if term is not None:
                term.service.stop()
                if term.master is not None:
                    term.master.stop()
            processes.remove(folder)

    def _begin(self, folder: Path, token: int) -> _Term:
        serve = self._config.serve
        if not self._own_master:
            service = self._serve(self._config.spark.master, {})
            self._open(service, token)
            self._tell(f"ready: computing on {self._config.spark.master}")
            return _Term(None, service)
        master, url = processes.start_master(folder, serve.bind_address, self._secret)
        try:
            board = WorkerBoard(self._store, self._node.member.id, token)
            # Workers may come while the driver still starts.
            self._admission.open(url, self._secret, board)
            host = serve.bind_address
            conf = {
                **processes.secure(self._secret),
                "spark.driver.host": host,
                "spark.driver.bindAddress": host,
                "spark.executor.memory": _executor_memory(self._config.cluster.worker_memory),
            }
            service = self._serve(url, conf)
            self._open(service, token)
        except BaseException:
            master.stop()
            raise
        self._tell(f"ready: Spark's master is {url}, waiting for workers on the RPC port")
        return _Term(master, service)

    def _open(self, service: Service, token: int) -> None:
        """Start the service and let clients in, unless this coordinator should not lead any more by then."""
        engine = service.start_unless(lambda: self._stopping.is_set() or not self._leads(token))
        for problem in service.problems:
            self._tell(f"warning: {problem}")
        self._switch.open(engine)

    def _watch(self, token: int, term: _Term) -> None:
        waited = 0.0
        while not self._stopping.wait(_LOOK_EVERY):
            if not self._leads(token):
                self._tell("the lease is lost: standing by")
                return
            if term.master is not None and not term.master.runs:
                self._tell("Spark's master has ended: starting again")
                return
            waited += _LOOK_EVERY
            if waited >= _SWEEP_EVERY:
                waited = 0.0
                with suppress(PenstockError):
                    self._admission.sweep()

    def _leads(self, token: int) -> bool:
        leadership = self._node.leadership
        return leadership is not None and leadership.token == token


def _executor_memory(worker: str) -> str:
    """How much of a worker's memory its executor asks for: Spark adds its own overhead to it elsewhere."""
    amount, unit = int(worker[:-1]), worker[-1].lower()
    megabytes = amount * 1024 if unit == "g" else amount
    return f"{max(512, megabytes)}m"

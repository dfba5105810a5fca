"""`penstock serve`: a process in one of the three roles, from its start to its end."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from penstock.config import Config, cache_directory
from penstock.errors import ConfigError
from penstock.server.access import Access, Users
from penstock.server.access.access import is_loopback
from penstock.server.base import User
from penstock.server.http.sources import StoreSources
from penstock.server.process.listeners import ProtocolServers
from penstock.server.process.service import Service
from penstock.server.process.switch import EngineSwitch
from penstock.server.roles.coordinator import Coordinator
from penstock.server.roles.worker import WorkerRole
from penstock.server.roles.worker_admission import WorkerAdmission
from penstock.storage import Storage
from penstock.store.base import Store

Tell = Callable[[str, Mapping[str, object]], None]
"""Takes what happens, as a text for people, with the facts in it for programs."""

_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104


class Server:
    """Serves clients: alone, or as one of several coordinators."""

    def __init__(self, config: Config, store: Store, storage: Storage, tell: Tell) -> None:
        self._config = config
        self._store = store
        self._storage = storage
        self._tell = tell
        self._users = Users(store)
        self._access = Access(self._users, host=config.serve.bind_address, tls=config.tls is not None)
        self._stopping = threading.Event()
        self._coordinator: Coordinator | None = None
        self._folder = cache_directory() / "gateway"

    def stop(self) -> None:
        """Leave: `run` returns soon."""
        self._stopping.set()
        if self._coordinator is not None:
            self._coordinator.stop()

    def run(self) -> None:
        """Serve until asked to stop."""
        config = self._config
        switch = EngineSwitch("the server is starting up")
        coordinates = config.serve.role == "coordinator"
        admission = self._admission() if coordinates else None
        sources = StoreSources(self._store, self._storage, config)
        with ExitStack() as running:
            answer = admission.answer if admission is not None else None
            servers = ProtocolServers(config, switch, self._access, sources, answer)
            servers.start()
            running.callback(servers.stop)
            sources.connections = servers.connections
            self._announce(servers)
            if admission is None:
                self._alone(servers, switch)
            else:
                self._invite(servers)
                self._lead(servers, switch, admission)

    def _admission(self) -> WorkerAdmission:
        def is_user(name: str) -> bool:
            return self._users.find(name) is not None

        return WorkerAdmission(self._store, self._config.cluster, tls=self._config.tls, is_user=is_user)

    def _alone(self, servers: ProtocolServers, switch: EngineSwitch) -> None:
        service = self._service(None, {})
        try:
            engine = service.start_unless(self._stopping.is_set)
        except Exception:
            # Whatever ends a start that should end is no error; Spark may have got the signal too.
            if self._stopping.is_set():
                return
            raise
        try:
            self._report(service)
            switch.open(engine)
            self._invite(servers)
            self._tell("ready", {"ready": True})
            self._stopping.wait()
            switch.shut("the server is shutting down")
        finally:
            service.stop()

    def _lead(self, servers: ProtocolServers, switch: EngineSwitch, admission: WorkerAdmission) -> None:
        host, spark = self._config.serve.bind_address, self._config.spark
        if host in _EVERYWHERE:
            raise ConfigError(
                f"a coordinator cannot be bound to {host}: workers must know how to reach it",
                hint="set serve.bind_address to the address of this machine that workers see",
            )
        if self._config.tls is None and not is_loopback(host):
            raise ConfigError(
                f"a coordinator on {host} needs [tls]: it gives workers the secret of Spark's ports",
                hint="`penstock certs init` and `penstock certs issue NODE` make certificates",
            )
        self._coordinator = Coordinator(
            self._config,
            self._store,
            switch,
            admission,
            self._folder,
            self._service,
            lambda text: self._tell(text, {}),
            name=_own_name(servers.ports["sql"]),
            addresses={name: f"{host}:{port}" for name, port in servers.ports.items()},
            own_master=spark.master.startswith("local"),
        )
        if self._stopping.is_set():
            return
        self._coordinator.run()

    def _service(self, master: str | None, conf: Mapping[str, str]) -> Service:
        return Service(
            self._config,
            self._store,
            self._storage,
            self._known,
            self._folder,
            master=master,
            conf=conf,
            current=self._access.current,
            tell=lambda text: self._tell(text, {}),
        )

    def _known(self) -> Sequence[User]:
        return [account.user for account in self._users.list()]

    def _report(self, service: Service) -> None:
        for problem in service.problems:
            self._tell(f"warning: {problem}", {"warning": problem})

    def _announce(self, servers: ProtocolServers) -> None:
        """Where it listens: clients that come before it is ready are told to come again."""
        ports = servers.ports
        listening = f"SQL {ports['sql']}, Arrow {ports['rpc']}, web {ports['web']}"
        host = self._config.serve.bind_address
        self._tell(f"starting Spark; listening on {host}, ports: {listening}", {"ports": ports})

    def _invite(self, servers: ProtocolServers) -> None:
        """How to connect, when that works."""
        access = self._access
        host, scheme = self._config.serve.bind_address, "https" if self._config.tls else "http"
        shown = "127.0.0.1" if host in _EVERYWHERE else host
        user = "penstock" if access.trust("127.0.0.1") else "USER"
        ports = servers.ports
        self._tell(f"SQL   psql 'host={shown} port={ports['sql']} user={user} dbname=penstock'", {})
        self._tell(f"Arrow grpc{'+tls' if self._config.tls else ''}://{shown}:{ports['rpc']}", {})
        self._tell(f"web   {scheme}://{shown}:{ports['web']}/", {})
        self._tell(access.notice(), {"access": access.notice()})


def worker(config: Config, tell: Tell) -> WorkerRole:
    """The role *worker*, which needs nothing but a coordinator."""
    return WorkerRole(config, cache_directory() / "gateway", lambda text: tell(text, {}))


def _own_name(port: int) -> str:
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname().partition(".")[0]).strip("-_")
    return f"{(host or 'coordinator')[:80]}-{port}"

"""The servers of a process: PostgreSQL's protocol, Flight and HTTP. They ask the engine through a switch."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from penstock.config import Config
from penstock.errors import UsageError
from penstock.server.access import Access
from penstock.server.process.switch import EngineSwitch

if TYPE_CHECKING:
    from penstock.server.flight.server import WorkerActions
    from penstock.server.http.sources import Sources

_PATIENCE = 30.0
_OTHER_FILES = 3000
"""File descriptors beside those of SQL clients: HTTP, Flight, strangers, Spark, files of results."""
_log = logging.getLogger(__name__)


class ProtocolServers:
    """Listens from `start` to `stop`. ``worker_actions`` answers workers; without it none can join."""

    def __init__(
        self,
        config: Config,
        switch: EngineSwitch,
        access: Access,
        sources: Sources,
        worker_actions: WorkerActions | None = None,
    ) -> None:
        self._config = config
        self._switch = switch
        self._access = access
        self._sources = sources
        self._worker_actions = worker_actions
        self._running = ExitStack()
        self._connections: Callable[[], int] = lambda: 0
        self.ports: dict[str, int] = {}
        """Where each protocol is spoken: ``sql``, ``web`` and ``rpc``."""

    def start(self) -> None:
        """Take all ports, or none. Raises `UsageError` for one that cannot be had."""
        _allow_files(self._config.serve.max_connections)
        with ExitStack() as started:
            self._pgwire(started)
            self._flight(started)
            self._web(started)
            self._running = started.pop_all()

    def stop(self) -> None:
        """Say goodbye to clients and listen no more."""
        self._running.close()

    def connections(self) -> int:
        """How many clients of PostgreSQL's protocol are in."""
        return self._connections()

    def _pgwire(self, started: ExitStack) -> None:
        from penstock.server.network.certificates import Certificates
        from penstock.server.pgwire.server import ALPN, ClientLimits, PgServer

        serve, tls = self._config.serve, self._config.tls
        loop = started.enter_context(_Loop("penstock-pgwire"))
        server = PgServer(
            self._switch,
            self._access,
            host=serve.bind_address,
            port=serve.port,
            tls=Certificates(tls, ALPN) if tls else None,
            limits=ClientLimits(
                connections=serve.max_connections,
                connection_memory=serve.connection_memory,
                client_memory=serve.client_memory,
            ),
        )
        try:
            loop.run(server.start())
        except OSError as error:
            raise _taken("serve.port", serve.bind_address, serve.port, error) from error
        started.callback(lambda: loop.run(server.stop()))
        self.ports["sql"] = server.port
        self._connections = lambda: server.connections
        self._switch.dismiss = lambda why: loop.run(server.dismiss(why))

    def _flight(self, started: ExitStack) -> None:
        from penstock.server.flight import FlightSqlServer
        from penstock.server.flight.following import FollowingServer
        from penstock.server.flight.open_statements import OpenStatements

        host, port = self._config.serve.bind_address, self._config.cluster.rpc_port
        try:
            # gRPC tells of a port that is taken in words of its own, on stderr.
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            socket.create_server((host, port), family=family).close()
        except OSError as error:
            raise _taken("cluster.rpc_port", host, port, error) from error
        tls = self._config.tls

        def make(port: int, statements: OpenStatements | None) -> FlightSqlServer:
            return FlightSqlServer(
                self._switch,
                self._access,
                host=host,
                port=port,
                tls=tls,
                certificates=self._config.serve.client_certificates,
                worker_actions=self._worker_actions,
                statements=statements,
            )

        server = make(port, None) if tls is None else FollowingServer(make, port, tls)
        started.callback(server.stop)
        self.ports["rpc"] = server.port

    def _web(self, started: ExitStack) -> None:
        from penstock.server.http.server import WebServer

        serve = self._config.serve
        server = WebServer(
            self._switch,
            self._access,
            host=serve.bind_address,
            port=serve.web,
            tls=self._config.tls,
            sources=self._sources,
        )
        try:
            server.start()
        except OSError as error:
            raise _taken("serve.web_port", serve.bind_address, serve.web, error) from error
        started.callback(server.stop)
        self.ports["web"] = server.port


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def __enter__(self) -> _Loop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result(_PATIENCE)


def _taken(setting: str, host: str, port: int, error: OSError) -> UsageError:
    return UsageError(
        f"cannot listen on {host}:{port}: {os.strerror(error.errno) if error.errno else error}",
        hint=f"is another server there? Choose another {setting}, or 0 for any that is free",
    )


def _allow_files(connections: int) -> None:
    """See that there are file descriptors for as many clients as are let in, as far as the system allows."""
    needed = connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < needed:
        _log.warning(
            "this process may open %d files, and serve.max_connections = %d needs about %d: raise the limit "
            "(`ulimit -Hn`, or LimitNOFILE of systemd), or lower serve.max_connections",
            most,
            connections,
            needed,
        )

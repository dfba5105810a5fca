"""The servers of a process: PostgreSQL's protocol, Flight and HTTP, in front of a door."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from penstock.config import Config
from penstock.errors import UsageError
from penstock.gateway.access import Access
from penstock.gateway.door import Door

if TYPE_CHECKING:
    import ssl

    from penstock.gateway.flight.server import Reception
    from penstock.gateway.web.sources import Sources
    from penstock.tls import Tls

_PATIENCE = 30.0


class Front:
    """Listens from `start` to `stop`. ``reception`` answers workers; a server without one takes none."""

    def __init__(
        self,
        config: Config,
        door: Door,
        access: Access,
        sources: Sources,
        reception: Reception | None = None,
    ) -> None:
        self._config = config
        self._door = door
        self._access = access
        self._sources = sources
        self._reception = reception
        self._running = ExitStack()
        self._connections: Callable[[], int] = lambda: 0
        self.ports: dict[str, int] = {}
        """Where each protocol is spoken: ``sql``, ``web`` and ``rpc``."""

    def start(self) -> None:
        """Take all ports, or none. Raises `UsageError` for one that cannot be had."""
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
        from penstock.gateway.pgwire.server import Limits, PgServer

        serve, tls = self._config.serve, self._config.tls
        loop = started.enter_context(_Loop("penstock-pgwire"))
        server = PgServer(
            self._door,
            self._access,
            host=serve.bind_address,
            port=serve.port,
            tls=server_context(tls) if tls else None,
            binding=_binding(tls) if tls else None,
            limits=Limits(connections=serve.max_connections),
        )
        try:
            loop.run(server.start())
        except OSError as error:
            raise _taken("serve.port", serve.bind_address, serve.port, error) from error
        started.callback(lambda: loop.run(server.stop()))
        self.ports["sql"] = server.port
        self._connections = lambda: server.connections
        self._door.dismiss = lambda why: loop.run(server.dismiss(why))

    def _flight(self, started: ExitStack) -> None:
        from penstock.gateway.flight import FlightSqlServer

        host, port = self._config.serve.bind_address, self._config.cluster.rpc_port
        try:
            # gRPC tells of a port that is taken in words of its own, on stderr.
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            socket.create_server((host, port), family=family).close()
        except OSError as error:
            raise _taken("cluster.rpc_port", host, port, error) from error
        server = FlightSqlServer(
            self._door,
            self._access,
            host=host,
            port=port,
            tls=self._config.tls,
            certificates=self._config.serve.client_certificates,
            reception=self._reception,
        )
        started.callback(server.stop)
        self.ports["rpc"] = server.port

    def _web(self, started: ExitStack) -> None:
        from penstock.gateway.web.server import WebServer

        serve = self._config.serve
        server = WebServer(
            self._door,
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


def server_context(tls: Tls) -> ssl.SSLContext:
    """TLS for clients, many of which have no certificate: one that is shown is checked, none is needed."""
    import ssl

    context = tls.server_context()
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _binding(tls: Tls) -> bytes | None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from penstock.gateway.access.scram import end_point

    _, cert, _ = tls.credentials()
    return end_point(x509.load_pem_x509_certificates(cert)[0].public_bytes(Encoding.DER))


def _taken(setting: str, host: str, port: int, error: OSError) -> UsageError:
    return UsageError(
        f"cannot listen on {host}:{port}: {os.strerror(error.errno) if error.errno else error}",
        hint=f"is another server there? Choose another {setting}, or 0 for any that is free",
    )

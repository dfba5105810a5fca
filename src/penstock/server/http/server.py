"""The HTTP server: its thread and loop, and what holds for every request."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web

from penstock import __version__
from penstock.config.tls import Tls
from penstock.errors import PenstockError, SqlError
from penstock.server.access import Access
from penstock.server.base import Engine, User
from penstock.server.http.bodies import LARGEST
from penstock.server.http.errors import HttpError, error_json, status_of
from penstock.server.http.guard import USER, Guard
from penstock.server.http.metrics import CONTENT_TYPE, Metric, Tally, one, process, render
from penstock.server.http.openapi import document
from penstock.server.http.queries import Queries, answer
from penstock.server.http.results import ResultLimits
from penstock.server.http.sources import Sources
from penstock.server.http.views import Views
from penstock.server.network.certificates import Certificates
from penstock.server.network.sockets import Listeners, Unauthenticated

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler

PREFIX = "/api/v1"
CONNECTIONS = 500
"""Connections of clients that have shown who they are."""
UNAUTHENTICATED = 200
"""Connections that have not, those included with which TLS is not agreed on yet."""
_THREADS = 16
_IDLE = 60.0
"""Seconds within which a connection must ask for something, or for something more."""
_TICK = 2.0
_HANDSHAKE = 10.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "penstock",
    "X-Content-Type-Options": "nosniff",
}
_OPEN = frozenset({"/", "/healthz", "/readyz"})
"""What needs no credentials: it tells nothing that must be kept."""
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger(__name__)


class _Connection:
    """A connection that has not shown who it is."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.task: asyncio.Task[None] | None = None
        self.handler: RequestHandler | None = None

    @property
    def ended(self) -> bool:
        transport = self.handler.transport if self.handler is not None else None
        return self.task is not None and self.task.done() and (transport is None or transport.is_closing())

    def release(self) -> None:
        """Close the socket, if nobody else has it by now."""
        if self.handler is None:
            self.sock.close()

    def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
        # A transport that has hardly begun with TLS does not close when it is told to: it sees the end so.
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if self.handler is not None and self.handler.transport is not None:
            self.handler.transport.abort()


class WebServer:
    """Serves HTTP from `start` to `stop`, in a thread of its own. ``port`` 0 takes any that is free.

    With ``tls`` it speaks HTTPS and takes client certificates, but wants none. ``sources`` tell of runs,
    streams and workers, and may bring metrics.
    """

    def __init__(
        self,
        engine: Engine,
        access: Access,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls | None = None,
        sources: Sources | None = None,
        names: tuple[str, ...] = (),
        plain_passwords: bool = False,
        limits: ResultLimits | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._engine = engine
        self._access = access
        self._tls = tls
        self._sources = sources or Sources()
        self._guard = Guard(access, host, names, plain_passwords)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="http")
        self._queries = Queries(engine, self._pool, limits or ResultLimits())
        self._tally = Tally()
        self._certificates: Certificates | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http", daemon=True)
        self._runner: web.AppRunner | None = None
        self._listeners: Listeners | None = None
        self._unauthenticated: Unauthenticated[_Connection] = Unauthenticated(UNAUTHENTICATED)
        self._clients: set[RequestHandler] = set()
        self._ticking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen. Raises `OSError` if the port cannot be had, and `ConfigError` for wrong certificates."""
        self._certificates = Certificates(self._tls) if self._tls else None
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop listening, cancel what runs, and let connections go. Harmless when repeated."""
        if self._thread.is_alive():
            with suppress(RuntimeError):
                asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        if not self._loop.is_closed():
            self._loop.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def application(self) -> web.Application:
        """The routes, with what holds for each of them."""
        app = web.Application(middlewares=[self._tidy, self._admit], client_max_size=LARGEST)
        app.on_response_prepare.append(_add_headers)
        app.router.add_routes(
            [
                web.get("/", self._root),
                web.get("/healthz", self._health),
                web.get("/readyz", self._ready),
                web.get("/metrics", self._metrics, allow_head=False),
                web.get(f"{PREFIX}/openapi.json", self._openapi, allow_head=False),
                *self._queries.routes(PREFIX),
                *Views(self._engine, self._access, self._sources, self._pool).routes(PREFIX),
            ]
        )
        return app

    # its life

    async def _listen(self) -> None:
        self._runner = web.AppRunner(
            self.application(),
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=_IDLE,
            auto_decompress=False,
        )
        await self._runner.setup()
        self._listeners = Listeners(self._admit_socket)
        self.port = await self._listeners.start(self.host, self.port)
        self._ticking = self._loop.create_task(self._tick())

    async def _leave(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        if self._listeners is not None:
            self._listeners.close()
        for connection in self._unauthenticated.all():
            connection.end()
        self._queries.close()
        if self._runner is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._runner.shutdown()
                    await self._runner.cleanup()

    # a connection comes

    def _admit_socket(self, sock: socket.socket, address: str) -> None:
        for gone in [each for each in self._unauthenticated.all() if each.ended]:
            self._unauthenticated.remove(gone)
        connection = _Connection(sock)
        if (leaving := self._unauthenticated.add(connection, address)) is not None:
            leaving.end()
        connection.task = self._loop.create_task(self._greet(connection))
        # Also for one that is ended before it has begun.
        connection.task.add_done_callback(lambda _: connection.release())

    async def _greet(self, connection: _Connection) -> None:
        """Make a connection of a socket: until TLS is agreed on, nobody else knows of it."""
        assert self._runner is not None and self._runner.server is not None
        handler = connection.handler = self._runner.server()
        shown = self._certificates.now() if self._certificates is not None else None
        with suppress(OSError, asyncio.CancelledError):
            await self._loop.connect_accepted_socket(
                lambda: handler,
                connection.sock,
                ssl=shown.context if shown is not None else None,
                ssl_handshake_timeout=_HANDSHAKE if shown is not None else None,
            )

    def _known(self, request: web.Request) -> None:
        """A connection has shown who it is. Raises `HttpError` 503 if too many have."""
        handler = request.protocol
        if handler in self._clients:
            return
        self._clients = {each for each in self._clients if each.transport is not None}
        if len(self._clients) >= CONNECTIONS:
            raise HttpError(503, "too-many-connections", f"{CONNECTIONS} connections are open", "try later")
        self._clients.add(handler)
        for connection in self._unauthenticated.all():
            if connection.handler is handler:
                self._unauthenticated.remove(connection)

    async def _tick(self) -> None:
        """What has to be done now and then."""
        while True:
            await asyncio.sleep(_TICK)
            for held in self._queries.results.expired():
                held.close()
            with suppress(PenstockError):
                self._tally.look(await self._ask(self._seen))

    def _seen(self) -> Any:
        return self._engine.queries(User("metrics", admin=True))

    # every request

    @web.middleware
    async def _tidy(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Errors as JSON, and headers that browsers heed."""
        response: web.StreamResponse
        try:
            return await handler(request)
        except HttpError as error:
            response = answer(error_json(error), status=error.status, headers=error.headers)
        except PenstockError as error:
            response = answer(error_json(error), status=status_of(error))
        except web.HTTPException as error:
            response = _as_json(error)
        except (ConnectionError, asyncio.CancelledError, TimeoutError):
            raise
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            failure = HttpError(500, "internal", "the server failed to answer", "its log tells more")
            response = answer(error_json(failure), status=500)
        if request.can_read_body:
            # Nobody has read what the client sends, so the next request cannot be found.
            response.force_close()
        return response

    @web.middleware
    async def _admit(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        self._guard.check_source(request)
        if request.path not in _OPEN:
            request[USER] = await self._ask(self._guard.authenticate, request)
            self._known(request)
        return await handler(request)

    async def _root(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return answer({"penstock": __version__, "api": PREFIX, "openapi": f"{PREFIX}/openapi.json"})

    async def _health(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return answer({"status": "alive"})

    async def _ready(self, request: web.Request) -> web.Response:  # noqa: ARG002
        why = await self._ask(self._engine.ready)
        if why is None:
            return answer({"status": "ready"})
        return answer({"status": "not ready", "reason": why}, status=503)

    async def _openapi(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return answer(document(__version__))

    async def _metrics(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(
            body=(await self._ask(self._render)).encode(), headers={"Content-Type": CONTENT_TYPE}
        )

    def _render(self) -> str:
        why: str | None = None
        try:
            why = self._engine.ready()
            self._tally.look(self._seen())
        except SqlError as error:
            why = error.what
        assert self._runner is not None and self._runner.server is not None
        metrics = [
            Metric("penstock_build_info", "gauge", "The version.", [({"version": __version__}, 1)]),
            one("penstock_ready", "gauge", "Whether statements can be answered.", float(why is None)),
            *self._tally.metrics(),
            one("penstock_auth_failures_total", "counter", "Logins that failed.", self._access.failures),
            one(
                "penstock_http_connections",
                "gauge",
                "Connections of HTTP clients.",
                len(self._runner.server.connections),
            ),
            one(
                "penstock_http_results",
                "gauge",
                "Results that are read or wait for a reader.",
                sum(not held.closed for held in self._queries.results.all()),
            ),
            *process(),
            *self._sources.metrics(),
        ]
        return render(metrics)

    async def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._pool, function, *arguments)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:  # noqa: ARG001
    response.headers.update(_HEADERS)


def _as_json(error: web.HTTPException) -> web.Response:
    code = {404: "not-found", 405: "wrong-method", 413: "too-large"}.get(error.status, "http")
    told = HttpError(error.status, code, error.reason, f"{PREFIX}/openapi.json says what there is")
    response = answer(error_json(told), status=error.status)
    if allow := error.headers.get("Allow"):
        response.headers["Allow"] = allow
    return response

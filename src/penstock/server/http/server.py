"""The HTTP server: its thread and loop, and what holds for every request."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web

from penstock import __version__
from penstock.errors import PenstockError, SqlError
from penstock.gateway.access import Access
from penstock.gateway.base import Engine, User
from penstock.gateway.web.bodies import LARGEST
from penstock.gateway.web.errors import HttpError, error_json, status_of
from penstock.gateway.web.guard import USER, Guard
from penstock.gateway.web.metrics import CONTENT_TYPE, Metric, Tally, one, process, render
from penstock.gateway.web.openapi import document
from penstock.gateway.web.queries import Queries, answer
from penstock.gateway.web.results import Limits
from penstock.gateway.web.sources import Sources
from penstock.gateway.web.views import Views
from penstock.tls import Tls

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler

PREFIX = "/api/v1"
CONNECTIONS = 500
_THREADS = 16
_IDLE = 60.0
"""Seconds within which a connection must ask for something, or for something more."""
_TICK = 2.0
_RELOAD = 30
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
        limits: Limits | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._engine = engine
        self._access = access
        self._tls = tls
        self._sources = sources or Sources()
        self._guard = Guard(access, host, names, plain_passwords)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="http")
        self._queries = Queries(engine, self._pool, limits or Limits())
        self._tally = Tally()
        self._context: ssl.SSLContext | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http", daemon=True)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Listen. Raises `OSError` if the port cannot be had, and `ConfigError` for wrong certificates."""
        self._context = _context(self._tls) if self._tls else None
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
        self._server = await self._loop.create_server(
            self._connection,
            self.host,
            self.port,
            ssl=self._context,
            ssl_handshake_timeout=10 if self._context else None,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._ticking = self._loop.create_task(self._tick())

    async def _leave(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        if self._server is not None:
            self._server.close()
        self._queries.close()
        if self._runner is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._runner.shutdown()
                    await self._runner.cleanup()

    def _connection(self) -> asyncio.Protocol:
        """A protocol for a new connection, which is not kept if there are too many."""
        assert self._runner is not None and self._runner.server is not None
        handler = self._runner.server()
        if len(self._runner.server.connections) >= CONNECTIONS:
            # Only when it is made can it be ended.
            self._loop.call_later(0.01, _refuse, handler)
        return handler

    async def _tick(self) -> None:
        """What has to be done now and then."""
        for number in range(1, 1 << 62):
            await asyncio.sleep(_TICK)
            for held in self._queries.results.expired():
                held.close()
            with suppress(PenstockError):
                self._tally.look(await self._ask(self._seen))
            if self._tls and self._context and number % _RELOAD == 0:
                await self._ask(_reload, self._tls, self._context)

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


def _refuse(handler: RequestHandler) -> None:
    if handler.transport is not None:
        handler.transport.abort()


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:  # noqa: ARG001
    response.headers.update(_HEADERS)


def _as_json(error: web.HTTPException) -> web.Response:
    code = {404: "not-found", 405: "wrong-method", 413: "too-large"}.get(error.status, "http")
    told = HttpError(error.status, code, error.reason, f"{PREFIX}/openapi.json says what there is")
    response = answer(error_json(told), status=error.status)
    if allow := error.headers.get("Allow"):
        response.headers["Allow"] = allow
    return response


def _context(tls: Tls) -> ssl.SSLContext:
    context = tls.server_context()
    # A certificate is one way to say who one is; a password or a token are others.
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _reload(tls: Tls, context: ssl.SSLContext) -> None:
    """New connections get certificates that were replaced; wrong ones leave those in use that were right."""
    try:
        ca, _, _ = tls.credentials()
        context.load_cert_chain(tls.cert, tls.key)
        context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))
    except (PenstockError, OSError) as error:
        _log.warning("certificates on disk are wrong, the last good ones stay in use: %s", error)

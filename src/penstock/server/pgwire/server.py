"""The PostgreSQL server: takes connections, and hands each to a session."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.errors import SqlError
from penstock.server.base import Client, Connection, Engine
from penstock.server.network.budgets import CLIENTS, CONNECTION, Budget, Purse
from penstock.server.network.certificates import Certificates, ServerCertificate
from penstock.server.network.sockets import Listeners, Unauthenticated
from penstock.server.network.threads import ThreadPool
from penstock.server.pgwire.encode.rows import warm_up
from penstock.server.pgwire.protocol import frontend, messages, requests
from penstock.server.pgwire.protocol.channel import Channel, Gone
from penstock.server.pgwire.protocol.startup import Authenticator, Greeted, Greeter, Key, within
from penstock.server.pgwire.session.session import PgSession, as_sql_error
from penstock.server.session_settings import Settings

ALPN = "postgresql"
_TLS_RECORD = 0x16
_CONTROL = 64
_PATROL = 1.0
_FAREWELL = 5.0
_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What clients can use up. Times are in seconds, sizes in bytes."""

    connections: int = 1000
    greeting: int = 200
    """Connections that have not shown yet who they are; a newer one ends an older, see `Unauthenticated`."""
    authentication: float = 60.0
    message: int = frontend.MESSAGE_LIMIT
    keepalive: float = 60.0
    connection_memory: int = CONNECTION
    """What is kept for one client: statements, values, a message that comes in."""
    client_memory: int = CLIENTS
    """The same for all clients together."""


_LIMITS = ClientLimits()


class _Connection:
    """A connection, from its first byte to its last."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.sock = sock
        self.address = address
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.channel: Channel | None = None

    def release(self) -> None:
        """Close the socket, if no channel has it.

        A transport that has hardly begun with TLS does not close when it is told to: it sees the end so.
        """
        if self.channel is None:
            self.sock.close()
        elif self.channel.never_made:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


class PgServer:
    """Serves PostgreSQL clients from an engine. Belongs to the event loop in which it is started.

    ``standby`` says why this server does not answer at the moment, None while it does. ``tls`` knows the
    protocol by the name `ALPN`.
    """

    def __init__(
        self,
        engine: Engine,
        access: Authenticator,
        *,
        host: str = "127.0.0.1",
        port: int = 5432,
        tls: Certificates | None = None,
        limits: ClientLimits = _LIMITS,
        standby: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._access = access
        self._host = host
        self.port = port
        self._tls = tls
        self._limits = limits
        self._budget = Budget(limits.client_memory, limits.connection_memory)
        self._standby = standby
        self._listeners: Listeners | None = None
        self._greeting: Unauthenticated[_Connection] = Unauthenticated(limits.greeting)
        self._sessions: dict[int, tuple[Key, PgSession, Channel]] = {}
        self._numbers = itertools.count(1)
        self._workers = ThreadPool(limits.connections, "pgwire")
        # Apart from the others: a cancel must not wait for what it cancels.
        self._control = ThreadPool(_CONTROL, "pgwire-control")
        self._patrol: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def connections(self) -> int:
        """How many clients are in."""
        return len(self._sessions)

    @property
    def threads(self) -> int:
        return self._workers.count

    async def start(self) -> None:
        """Listen. With port 0 a free one is taken, and `port` tells which."""
        self._loop = asyncio.get_running_loop()
        self._listeners = Listeners(self._admit)
        self.port = await self._listeners.start(self._host, self.port)
        self._patrol = self._loop.create_task(self._watch())
        # Not a daemon: a compiler should not be at work while the process ends.
        threading.Thread(target=warm_up, name="penstock-warm-up").start()

    async def stop(self) -> None:
        """Take no more clients, tell those that are in, and end what they run."""
        self._closing = True
        if self._listeners is not None:
            self._listeners.close()
        if self._patrol is not None:
            self._patrol.cancel()
        for incoming in self._greeting.all():
            self._dismiss(incoming)
        await self.dismiss("terminating connection due to administrator command")
        await self._loop.run_in_executor(None, self._workers.close, 1.0)
        await self._loop.run_in_executor(None, self._control.close, 1.0)

    async def dismiss(self, why: str) -> None:
        """Send all clients away and go on listening: when another coordinator leads, they look for it."""
        farewell = messages.error_response(SqlError(why, sqlstate="57P01"), severity="FATAL")
        leaving = dict(self._sessions)
        for _, _, channel in leaving.values():
            channel.finish(farewell)
        end = self._loop.time() + _FAREWELL
        while not leaving.keys().isdisjoint(self._sessions) and self._loop.time() < end:
            await asyncio.sleep(0.01)

    # a connection comes

    def _admit(self, sock: socket.socket, address: str) -> None:
        _keep_alive(sock, self._limits.keepalive)
        incoming = _Connection(sock, address)
        if (leaving := self._greeting.add(incoming, address)) is not None:
            self._dismiss(leaving)
        incoming.timer = self._loop.call_later(self._limits.authentication, self._dismiss, incoming)
        # Until a client says something it costs a socket and a timer.
        self._loop.add_reader(sock, self._first_byte, incoming)

    def _first_byte(self, incoming: _Connection) -> None:
        self._loop.remove_reader(incoming.sock)
        try:
            first = incoming.sock.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if not first:
            self._dismiss(incoming)
            return
        shown = self._tls.now() if self._tls is not None else None
        direct = first[0] == _TLS_RECORD and shown is not None
        incoming.task = self._loop.create_task(self._receive(incoming, shown, direct=direct))
        # Also for one that is cancelled before it has begun.
        incoming.task.add_done_callback(lambda _: incoming.release())

    def _dismiss(self, incoming: _Connection) -> None:
        """End a connection that has not come in."""
        self._greeting.remove(incoming)
        if incoming.timer is not None:
            incoming.timer.cancel()
        if incoming.task is not None:
            incoming.task.cancel()
        elif incoming.sock.fileno() >= 0:
            self._loop.remove_reader(incoming.sock)
            incoming.sock.close()

    async def _receive(self, incoming: _Connection, shown: ServerCertificate | None, *, direct: bool) -> None:
        """Greet a client; it is left to its session at the end, or gone."""
        # Apart from what the session keeps: that is full is told without hanging up.
        purse = Purse(self._budget)
        channel = Channel(self._loop, frontend.Frontend(self._limits.message, purse))
        incoming.channel = channel
        last = b""
        handed = False
        try:
            if incoming.timer is not None:
                incoming.timer.cancel()
            await self._loop.connect_accepted_socket(
                lambda: channel,
                incoming.sock,
                ssl=shown.context if shown is not None and direct else None,
                ssl_handshake_timeout=self._limits.authentication if direct else None,
            )
            handed = await within(
                self._limits.authentication, self._converse(incoming, channel, shown, purse)
            )
        except (Gone, OSError, asyncio.CancelledError):
            _log.debug("a client at %s left before it was let in", incoming.address)
        except Exception as error:
            last = messages.error_response(as_sql_error(error), severity="FATAL")
        finally:
            self._greeting.remove(incoming)
            if not handed:
                channel.finish(last)
                purse.close()

    async def _converse(
        self, incoming: _Connection, channel: Channel, shown: ServerCertificate | None, purse: Purse
    ) -> bool:
        """Whether a session has taken over."""
        _check_alpn(channel)
        limits = self._limits
        greeter = Greeter(
            channel,
            self._access,
            incoming.address,
            tls=shown,
            timeout=limits.authentication,
            block=self._block,
        )
        opening = await greeter.opening()
        if isinstance(opening, requests.CancelRequest):
            await self._cancel(opening)
            return False
        if len(self._sessions) >= limits.connections:
            raise SqlError(
                "sorry, too many clients already",
                sqlstate="53300",
                hint=f"at most {limits.connections} are served at a time",
            )
        why = self._standby() or await self._block(self._engine.ready)
        if why is not None:
            raise SqlError(why, sqlstate="57P03")
        greeted = await greeter.greet(opening, self._number())
        client = Client(greeted.user, "pgwire", incoming.address, greeted.settings.application_name)
        connection = await self._connect(client, greeted.settings)
        if channel.lost or self._closing:
            self._control.run(connection.close)
            raise Gone
        self._greeting.remove(incoming)
        session = PgSession(connection, channel, Purse(self._budget))
        session.on_close(purse.close)
        self._welcome(greeted, session, channel)
        _log.debug("%s came in from %s", greeted.user.name, incoming.address)
        return True

    async def _connect(self, client: Client, settings: Settings) -> Connection:
        connecting = asyncio.ensure_future(self._block(lambda: self._engine.connect(client, settings)))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # The engine goes on with it in its thread, and nobody will come for what it gives.
            connecting.add_done_callback(self._unwanted)
            raise

    def _unwanted(self, connecting: asyncio.Future[Connection]) -> None:
        if not connecting.cancelled() and connecting.exception() is None:
            self._control.run(connecting.result().close)

    def _number(self) -> int:
        """A number for a session that no other has; clients take it for a process id."""
        while (number := next(self._numbers) & 0x7FFFFFFF) in self._sessions or not number:
            pass
        return number

    def _welcome(self, greeted: Greeted, session: PgSession, channel: Channel) -> None:
        key = greeted.key
        self._sessions[key.process] = (key, session, channel)
        session.on_close(lambda: self._forget(key.process))
        lines = [messages.AUTHENTICATION_OK]
        lines += [messages.parameter_status(*each) for each in greeted.settings.changes().items()]
        lines.append(messages.backend_key_data(key.process, key.secret))
        lines.append(messages.ready_for_query("I"))
        channel.write(b"".join(lines))

        def work() -> None:
            idle = session.serve()
            if idle is not None:
                self._loop.call_soon_threadsafe(channel.arm, idle, lambda: _too_idle(session, channel))

        channel.attend(
            lambda: self._workers.run(work),
            lambda: self._control.run(session.depart),
        )

    def _forget(self, process: int) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._sessions.pop, process, None)

    # what else comes

    async def _cancel(self, request: requests.CancelRequest) -> None:
        found = self._sessions.get(request.process)
        # A wrong key is not told from one that is right but too late.
        if found is not None and found[0].matches(request.key):
            await self._block(found[1].cancel)

    async def _watch(self) -> None:
        """Notice clients that hang up while we do not read what they have sent ahead."""
        while True:
            await asyncio.sleep(_PATROL)
            for _, _, channel in list(self._sessions.values()):
                if channel.abandoned():
                    channel.finish()

    async def _block(self, work: Callable[[], _Result]) -> _Result:
        """Run in a thread what may block."""
        future: asyncio.Future[_Result] = self._loop.create_future()

        def settle(result: _Result | None, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, error = None, None
            try:
                result = work()
            except Exception as raised:
                error = raised
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(settle, result, error)

        self._control.run(run)
        return await future


def _too_idle(session: PgSession, channel: Channel) -> None:
    if session.transaction.status == "I":
        told = SqlError("terminating connection due to idle-session timeout", sqlstate="57P05")
    else:
        told = SqlError("terminating connection due to idle-in-transaction timeout", sqlstate="25P03")
    channel.finish(messages.error_response(told, severity="FATAL"))


def _check_alpn(channel: Channel) -> None:
    """Whoever begins with TLS must mean PostgreSQL's protocol by it."""
    direct = channel.transport.get_extra_info("ssl_object")
    if direct is not None and direct.selected_alpn_protocol() != ALPN:
        raise requests.ProtocolError(
            f'received direct SSL connection request without ALPN protocol "{ALPN}"', fatal=True
        )


def _keep_alive(sock: socket.socket, seconds: float) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), max(1, int(seconds)))

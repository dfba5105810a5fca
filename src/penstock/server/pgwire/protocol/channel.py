"""The bytes of one connection: read by the event loop, consumed and answered by a thread.

Nothing here grows without bound. What a client sends ahead is read up to a mark and then left in its socket;
what it does not read stops the thread that writes, and with it the query.
"""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable, Sequence
from ssl import SSLContext

from penstock.server.pgwire.protocol.frontend import Frontend
from penstock.server.pgwire.protocol.requests import Message, ProtocolError

AHEAD = 64 * 1024
"""How much of what a client sends ahead is read."""
PENDING = 256 * 1024
"""How much of what a client does not read waits here, besides one chunk of rows."""
_LINGER = 5.0
_HUNG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)
Buffer = bytes | bytearray | memoryview


class Gone(Exception):
    """The client is not there any more."""


class Channel(asyncio.Protocol):
    """First `receive` reads for the coroutine that greets the client; `attend` hands over to threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, frontend: Frontend) -> None:
        self._loop = loop
        self._frontend = frontend
        self._transport: asyncio.Transport | None = None
        self._next: Message | ProtocolError | None = None
        self._reading = True
        self._waiter: asyncio.Future[None] | None = None
        self._state = threading.Condition()
        self._queued = 0
        self._paused = False
        self._busy = True
        self._work: Callable[[], None] = _nothing
        self._leave: Callable[[], None] = _nothing
        self.lost = False
        self.timer: asyncio.TimerHandle | None = None

    # as asyncio calls it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._adopt(transport)

    def data_received(self, data: bytes) -> None:
        with self._state:
            self._frontend.feed(data)
            start = not self._busy and self._pull()
            if self._busy and self._reading and self._frontend.buffered > AHEAD:
                self._reading = False
                self.transport.pause_reading()
        self._wake_reader()
        if start:
            self.disarm()
            self._work()

    def eof_received(self) -> bool:
        self.connection_lost(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        with self._state:
            if self.lost:
                return
            self.lost = True
            self._state.notify_all()
        self.disarm()
        self._wake_reader()
        leave, self._leave, self._work = self._leave, _nothing, _nothing
        leave()

    def pause_writing(self) -> None:
        with self._state:
            self._paused = True

    def resume_writing(self) -> None:
        with self._state:
            self._paused = False
            self._state.notify_all()

    # for the event loop

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def never_made(self) -> bool:
        return self._transport is None

    @property
    def untouched(self) -> bool:
        """Whether the client has sent nothing more yet."""
        return not self._frontend.buffered

    async def receive(self) -> Message:
        """The next message, for the coroutine that greets."""
        while (message := self._frontend.read()) is None:
            if self.lost:
                raise Gone
            self._read_on()
            self._waiter = self._loop.create_future()
            await self._waiter
        return message

    async def secure(self, context: SSLContext, timeout: float) -> None:
        """Speak TLS from here on. Raises `OSError` if the two sides cannot."""
        transport = await self._loop.start_tls(
            self.transport, self, context, server_side=True, ssl_handshake_timeout=timeout
        )
        if transport is None:
            raise Gone
        self._adopt(transport)

    def attend(self, work: Callable[[], None], leave: Callable[[], None]) -> None:
        """From now on call ``work`` when there is a message and nobody at it, ``leave`` when the client goes.

        Both are called by the event loop, and must not block.
        """
        with self._state:
            self._work, self._leave, self._busy = work, leave, False
            lost = self.lost
            self._frontend.authenticated()
            start = not lost and self._pull()
            self._resume()
        if lost:
            leave()
        elif start:
            work()

    def arm(self, seconds: float, late: Callable[[], None]) -> None:
        """Call ``late`` if the client sends nothing in this time."""
        self.disarm()
        if not self._busy and not self.lost:
            self.timer = self._loop.call_later(seconds, late)

    def disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def write(self, data: Buffer) -> None:
        if not self.lost and not self.transport.is_closing():
            self.transport.write(data)

    def finish(self, last: Buffer = b"") -> None:
        """Send this, then hang up, also on a client that does not read it."""
        if self._transport is None or self._transport.is_closing():
            return
        transport = self._transport
        if last:
            transport.write(last)
        transport.close()
        self._loop.call_later(_LINGER, transport.abort)
        self.connection_lost(None)

    def abandoned(self) -> bool:
        """Whether the client has hung up without our having read that, since we do not read at the moment."""
        if self._reading or self.lost:
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), _HUNG_UP)
        return bool(poll.poll(0))

    # for the thread that works for the client

    def take(self) -> Message | None:
        """The next message; None if there is none yet, and then ``work`` will be called again.

        Raises `ProtocolError` for one that is none.
        """
        with self._state:
            if self.lost:
                raise Gone
            message, self._next = self._next, None
            if message is None:
                try:
                    message = self._frontend.read()
                finally:
                    self._resume()
            if isinstance(message, ProtocolError):
                raise message
            if message is None:
                # So that it lets go of what was read.
                self._frontend.feed(b"")
                self._busy = False
                self._resume()
            return message

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Write, and wait while the client is slow. Raises `Gone`."""
        size = sum(map(len, buffers))
        with self._state:
            if self.lost:
                raise Gone
            self._queued += size
        # Small ones go in one piece; of large ones no second copy is made.
        whole = [b"".join(buffers)] if size < PENDING and len(buffers) > 1 else buffers
        self._loop.call_soon_threadsafe(self._send, whole, size)
        del buffers, whole
        if size < AHEAD and not self._paused and self._queued < PENDING:
            return
        with self._state:
            while (self._paused or self._queued > PENDING) and not self.lost:
                self._state.wait()

    def hang_up(self) -> None:
        """Finish, after what was sent."""
        self._loop.call_soon_threadsafe(self.finish)

    # inside

    def _adopt(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=PENDING, low=PENDING // 4)

    def _pull(self) -> bool:
        """Whether somebody has to attend to a message; it is read already."""
        try:
            self._next = self._frontend.read()
        except ProtocolError as error:
            self._next = error
        self._busy = self._next is not None
        return self._busy

    def _resume(self) -> None:
        if not self._reading and (self._frontend.buffered <= AHEAD or not self._busy):
            self._reading = True
            self._loop.call_soon_threadsafe(self._read_on)

    def _read_on(self) -> None:
        if not self.lost and not self.transport.is_closing() and not self.transport.is_reading():
            self._reading = True
            self.transport.resume_reading()

    def _wake_reader(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _send(self, buffers: Sequence[Buffer], size: int) -> None:
        for data in buffers:
            self.write(data)
        with self._state:
            self._queued -= size
            self._state.notify_all()


def _nothing() -> None:
    """For a channel that nobody attends to."""

"""One client's session: takes its messages, and answers them in PostgreSQL's order.

All of this runs in a thread, for one message after the other. `SessionBase.cancel` and `SessionBase.depart`
may be called by others at any time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.errors import PenstockError, SqlError
from penstock.server.base import Connection, Execution
from penstock.server.pgwire.protocol import messages, requests
from penstock.server.pgwire.protocol.channel import Buffer, Channel, Gone
from penstock.server.pgwire.session.transactions import TransactionBlock

_FLUSH = 64 * 1024
_CANCELED = "canceling statement due to user request"
_QUIET = ("warning", "error")
_log = logging.getLogger(__name__)


class SessionBase:
    """What a session is made of, whatever the way its statements come."""

    def __init__(self, connection: Connection, channel: Channel) -> None:
        self.connection = connection
        self.settings = connection.settings
        self.transaction = TransactionBlock(self.settings)
        self._channel = channel
        self._out: list[Buffer] = []
        self._size = 0
        self._serving = threading.Lock()
        self._lock = threading.Lock()
        self._working = False
        self._current: Execution | None = None
        self._canceled: str | None = None
        self._gone = False
        self._closed = False
        self._actions: dict[type[object], Callable[[requests.Message], None]] = {}
        self._skipping = False
        self._on_close: list[Callable[[], None]] = []

    # the thread's loop

    def serve(self) -> float | None:
        """Answer until there is no message left. How long the client may be idle from now on."""
        with self._serving:
            try:
                while self._step():
                    pass
            except Gone:
                pass
            except Exception:
                _log.exception("a session of the PostgreSQL server failed")
                self._channel.hang_up()
        if self._gone:
            self._close_once()
            return None
        if self.transaction.status == "I":
            return self.settings.idle_session_timeout
        return self.settings.idle_in_transaction_session_timeout

    def _step(self) -> bool:
        message: requests.Message | None = None
        try:
            message = self._channel.take()
            if message is None:
                return False
            if isinstance(message, requests.Terminate):
                self._channel.hang_up()
                return False
            if self._skipping and not isinstance(message, requests.Sync):
                return True
            self._working = True
            self._act(message)
        except Gone:
            raise
        except Exception as error:
            return self._failed(error, isinstance(message, requests.Query))
        return True

    def _act(self, message: requests.Message) -> None:
        action = self._actions.get(type(message))
        if action is None:
            raise requests.ProtocolError("this message cannot come here", fatal=True)
        action(message)

    def _failed(self, error: Exception, simple: bool) -> bool:
        """Tell the client. Whether the session goes on."""
        told = as_sql_error(error)
        fatal = isinstance(error, requests.ProtocolError) and error.fatal
        self.transaction.fail()
        if not self.transaction.block:
            self.ended(keep=False)
        self.put(messages.error_response(told, severity="FATAL" if fatal else "ERROR"))
        if fatal:
            self.flush()
            self._channel.hang_up()
            return False
        if simple:
            self.ready()
        else:
            self._skipping = True
            # A client that waits for the error before it sends Sync must see it.
            self.flush()
        return True

    # what is said

    def put(self, message: Buffer) -> None:
        self._out.append(message)
        self._size += len(message)
        if self._size >= _FLUSH:
            self.flush()

    def put_all(self, buffers: Sequence[Buffer]) -> None:
        self._out += buffers
        self._size += sum(map(len, buffers))
        if self._size >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        if self._out:
            out, self._out, self._size = self._out, [], 0
            self._channel.send(out)

    def notice(self, what: str, *, sqlstate: str = "00000", severity: str = "NOTICE") -> None:
        level = self.settings.get("client_min_messages")
        if level == "error" or (level in _QUIET and severity == "NOTICE"):
            return
        self.put(messages.notice_response(what, severity=severity, sqlstate=sqlstate))

    def ready(self) -> None:
        """The message is answered, and the client may go on."""
        if self.transaction.settle():
            self.ended(keep=True)
        self._skipping = False
        for name, value in self.settings.changes().items():
            self.put(messages.parameter_status(name, value))
        with self._lock:
            self._working, self._canceled = False, None
        self.put(messages.ready_for_query(self.transaction.status))
        self.flush()

    # what happens besides

    @contextmanager
    def interruptible(self, execution: Execution | None) -> Iterator[None]:
        """While this runs, `cancel` stops the execution."""
        with self._lock:
            self._current = execution
            canceled = self._canceled
        try:
            if canceled is not None:
                if execution is not None:
                    execution.cancel(canceled)
                raise SqlError(canceled, sqlstate="57014")
            yield
        finally:
            with self._lock:
                self._current = None

    def cancel(self, why: str = _CANCELED) -> None:
        """Stop the statement that runs, if one does. May block for a moment."""
        with self._lock:
            if not self._working:
                return
            self._canceled = why
            current = self._current
        if current is not None:
            current.cancel(why)

    def depart(self, why: str = "the client is gone") -> None:
        """The client is not there any more: stop its statement and let go of everything."""
        self._gone = True
        self.cancel(why)
        self._close_once()

    def on_close(self, action: Callable[[], None]) -> None:
        self._on_close.append(action)

    def ended(self, *, keep: bool) -> None:
        """The transaction ended, well or not."""

    def _close_once(self) -> None:
        # Whoever works for the client does this afterwards.
        if not self._serving.acquire(blocking=False):
            return
        try:
            if self._closed:
                return
            self._closed = True
            self._close()
        except Exception:
            _log.exception("a session of the PostgreSQL server could not be closed")
        finally:
            self._serving.release()
            for action in self._on_close:
                action()
            self._on_close.clear()

    def _close(self) -> None:
        self.connection.close()


def as_sql_error(error: Exception) -> SqlError:
    """What a client is told; what nobody foresaw is logged here, and told without its trace."""
    if isinstance(error, SqlError):
        return error
    if isinstance(error, PenstockError):
        return SqlError(error.what, hint=error.hint, left=error.left, sqlstate="XX000")
    if isinstance(error, MemoryError):
        return SqlError("out of memory", sqlstate="53200")
    _log.error("a statement failed in a way that nobody foresaw", exc_info=error)
    return SqlError(
        f"internal error: {type(error).__name__}",
        sqlstate="XX000",
        hint="The server's log has the details.",
    )

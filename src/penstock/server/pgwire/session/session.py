"""One client's session: takes its messages, and answers them in PostgreSQL's order.

All of this runs in a thread, for one message after the other. Others may call `PgSession.cancel` and
`PgSession.depart` at any time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.errors import PenstockError, SqlError
from penstock.server.base import Connection
from penstock.server.network.budgets import Purse
from penstock.server.pgwire.protocol import messages, requests
from penstock.server.pgwire.protocol.channel import Channel, Gone
from penstock.server.pgwire.session.context import SessionContext
from penstock.server.pgwire.session.dispatch import act
from penstock.server.pgwire.session.statements import session_rows

_log = logging.getLogger(__name__)


class PgSession:
    """A session: its transaction, what it has named, and the way from a message to its answer."""

    def __init__(self, connection: Connection, channel: Channel, purse: Purse | None = None) -> None:
        self._purse = purse or Purse()
        self._channel = channel
        self._context = context = SessionContext.of(connection, channel, self._purse)
        self.transaction = context.transaction
        self.cancel = context.interrupts.cancel
        context.settings.session_rows = lambda: session_rows(
            context.statements.told(), context.portals.told()
        )
        self._serving = threading.Lock()
        self._gone = False
        self._closed = False
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
            return self._context.settings.idle_session_timeout
        return self._context.settings.idle_in_transaction_session_timeout

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
            self._context.interrupts.begin()
            act(self._context, message)
            if isinstance(message, (requests.Query, requests.Sync)):
                self._ready()
        except Gone:
            raise
        except Exception as error:
            return self._failed(error, isinstance(message, requests.Query))
        return True

    def _failed(self, error: Exception, simple: bool) -> bool:
        """Tell the client. Whether the session goes on."""
        told = as_sql_error(error)
        fatal = isinstance(error, requests.ProtocolError) and error.fatal
        self.transaction.fail()
        if not self.transaction.block:
            self._context.portals.transaction_ended(keep=False)
        self._context.replies.put(messages.error_response(told, severity="FATAL" if fatal else "ERROR"))
        if fatal:
            self._context.replies.flush()
            self._channel.hang_up()
            return False
        if simple:
            self._ready()
        else:
            self._skipping = True
            # A client that waits for the error before it sends Sync must see it.
            self._context.replies.flush()
        return True

    def _ready(self) -> None:
        """The message is answered, and the client may go on."""
        if self.transaction.settle():
            self._context.portals.transaction_ended(keep=True)
        self._skipping = False
        for name, value in self._context.settings.changes().items():
            self._context.replies.put(messages.parameter_status(name, value))
        self._context.interrupts.end()
        self._context.replies.put(messages.ready_for_query(self.transaction.status))
        self._context.replies.flush()

    # what happens besides

    def depart(self, why: str = "the client is gone") -> None:
        """The client is not there any more: stop its statement and let go of everything."""
        self._gone = True
        self.cancel(why)
        self._close_once()

    def on_close(self, action: Callable[[], None]) -> None:
        self._on_close.append(action)

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
        self._context.portals.clear()
        self._context.statements.clear()
        self._purse.close()
        self._context.connection.close()


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

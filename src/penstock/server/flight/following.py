"""The Flight port with certificates that may be replaced while it serves.

gRPC reads certificates when a server is made. So another server is made for new ones, on the same port: the
old one stops listening at once and ends when the streams that it has begun are read. Between the two nobody
listens for some milliseconds; clients that are connected come back by themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.config.tls import Tls
from penstock.errors import PenstockError
from penstock.server.flight.open_statements import OpenStatements
from penstock.server.flight.server import FlightSqlServer
from penstock.server.network.certificates import state_of

_LOOK = 5.0
"""Seconds between two looks at the files."""
_AGAIN = 0.2
_log = logging.getLogger(__name__)

Make = Callable[[int, OpenStatements | None], FlightSqlServer]
"""A server at a port. It goes on with the open statements of the one before, if there was one."""


class FollowingServer:
    """Serves from its construction on until `stop`, with the certificates that the files of ``tls`` hold."""

    def __init__(self, make: Make, port: int, tls: Tls, look: float = _LOOK) -> None:
        self._make = make
        self._tls = tls
        self._look = look
        self._seen = state_of(tls)
        self._server = make(port, None)
        self.port = self._server.port
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="penstock-flight-certificates", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End what runs, also on servers that were replaced, and listen no more."""
        self._stopped.set()
        self._thread.join()
        self._server.stop()

    def _follow(self) -> None:
        while not self._stopped.wait(self._look):
            if (seen := state_of(self._tls)) == self._seen:
                continue
            self._seen = seen
            try:
                # Raises for what cannot be served: key and certificate must belong together.
                self._tls.server_context()
            except (PenstockError, OSError, ValueError) as error:
                _log.warning("certificates on disk are wrong, the last good ones stay in use: %s", error)
                continue
            self._replace()

    def _replace(self) -> None:
        old = self._server
        threading.Thread(target=old.shutdown, name="penstock-flight-leaving", daemon=True).start()
        while not self._stopped.is_set():
            try:
                self._server = self._make(self.port, old.statements)
            except Exception as error:
                # The old one may not have let go of the port yet; whatever it is, nobody else takes the port.
                _log.warning("the Flight port cannot be taken again yet: %s", error)
                self._stopped.wait(_AGAIN)
            else:
                _log.info("the Flight port shows new certificates")
                return

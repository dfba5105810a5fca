"""TLS towards clients, with certificates that may be replaced while a server runs."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from penstock.config.tls import Tls
from penstock.errors import PenstockError
from penstock.server.access.scram import end_point

_LOOK = 1.0
"""Seconds for which files are not looked at again."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """What one connection is shown. ``binding`` is what SCRAM binds to: the hash of that certificate."""

    context: ssl.SSLContext
    binding: bytes


class Certificates:
    """What new connections are shown, and whom they may be from. Safe for many threads.

    A client's certificate is checked, but none is needed: a password or a token say who somebody is, too. A
    CA that is no longer in the file is no longer believed, so a change makes a new context: what was loaded
    into one stays there. Should the files be wrong, the last that were right stay in use. Raises
    `ConfigError` if they are wrong from the beginning.
    """

    def __init__(self, tls: Tls, *protocols: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._tls = tls
        self._protocols = list(protocols)
        self._clock = clock
        self._lock = threading.Lock()
        self._files = self._look()
        self._looked = clock()
        self._shown = self._made()

    def now(self) -> ServerCertificate:
        """For a connection that comes now."""
        with self._lock:
            if self._clock() - self._looked >= _LOOK:
                self._looked = self._clock()
                self._follow()
            return self._shown

    def _follow(self) -> None:
        if (files := self._look()) == self._files:
            return
        try:
            self._shown = self._made()
        except (PenstockError, OSError, ValueError) as error:
            _log.warning("certificates on disk are wrong, the last good ones stay in use: %s", error)
        self._files = files

    def _made(self) -> ServerCertificate:
        context = self._tls.server_context()
        context.verify_mode = ssl.CERT_OPTIONAL
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        _, cert, _ = self._tls.credentials()
        own = x509.load_pem_x509_certificates(cert)[0]
        return ServerCertificate(context, end_point(own.public_bytes(Encoding.DER)))

    def _look(self) -> tuple[object, ...]:
        return state_of(self._tls)


def state_of(tls: Tls) -> tuple[object, ...]:
    """What files are there: another value once one of them was replaced."""
    return tuple(map(_state, (tls.ca, tls.cert, tls.key)))


def _state(path: str) -> object:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_size, found.st_mtime_ns


def common_name(transport: asyncio.BaseTransport | None) -> str | None:
    """Whom the certificate of a connection's client names; it was checked when TLS began.

    Its end is looked at again: where TLS goes on with an earlier session, nobody does.
    """
    certificate: Any = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate or ssl.cert_time_to_seconds(certificate["notAfter"]) <= time.time():
        return None
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None

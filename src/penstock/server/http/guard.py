"""Who asks over HTTP: credentials, and that no web page asks behind somebody's back.

A browser sends what it has (a trusted address, a remembered password, a client certificate) with every
request, whichever page makes it. So requests of other pages are refused, and so are names that are not this
server's: a page can have its own name point at this machine.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web

from penstock.errors import SqlError
from penstock.server.access import Access
from penstock.server.access.access import is_loopback
from penstock.server.base import User
from penstock.server.http.errors import HttpError
from penstock.server.network.certificates import common_name

USER = web.RequestKey("user", User)
_CHALLENGE = 'Basic realm="penstock", charset="UTF-8"'
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")
_OWN_PAGES = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class Guard:
    """Looks at a request before anybody else. ``host`` is what the server is bound to.

    ``names`` are further names that a server on loopback may be asked by. ``plain_passwords`` lets passwords
    come over the network without TLS, for a proxy that ends TLS in front of us.
    """

    access: Access
    host: str
    names: tuple[str, ...] = ()
    plain_passwords: bool = False

    def check_source(self, request: web.BaseRequest) -> None:
        """Raise `HttpError` 403 for a request that a foreign web page makes, or 421 under a foreign name."""
        name = host_of(request.headers.get("Host", ""))
        if is_loopback(self.host) and not is_loopback(name) and name not in self.names:
            raise HttpError(421, "wrong-host", "this server is not known by that name", "ask for 127.0.0.1")
        origin = request.headers.get("Origin")
        if origin is not None and _authority(origin) != request.headers.get("Host", "").lower():
            raise _foreign()
        if request.headers.get("Sec-Fetch-Site", "none").lower() not in _OWN_PAGES:
            raise _foreign()

    def authenticate(self, request: web.BaseRequest) -> User:
        """The user of a request. Blocks; raises `HttpError` 401, or 429 for one who fails too often."""
        address = request.remote or ""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            user = self.access.bearer(given.strip())
        elif scheme.lower() == "basic":
            user = self._basic(request, given.strip(), address)
        elif scheme:
            raise _unauthorized("only basic and bearer authorization are known here")
        else:
            user = self._ambient(request, address)
        if user is None:
            raise _unauthorized("the credentials are not right" if scheme else "credentials are needed")
        return user

    def _basic(self, request: web.BaseRequest, given: str, address: str) -> User | None:
        try:
            text = base64.b64decode(given + "=" * (-len(given) % 4), validate=True).decode()
        except (ValueError, binascii.Error):
            raise _unauthorized("the basic credentials cannot be read") from None
        name, _, password = text.partition(":")
        if self._trusts(request, address):
            return self.access.trusted(name)
        if not (request.secure or self.plain_passwords or is_loopback(address)):
            raise HttpError(
                403, "insecure", "a password must not cross the network in the clear", "use https: see [tls]"
            )
        try:
            return self.access.password(name, password, address)
        except SqlError as error:
            if error.sqlstate != "28000":
                raise
            refused = HttpError(429, "too-many-failures", error.what, error.hint)
            refused.headers["Retry-After"] = "60"
            raise refused from error

    def _ambient(self, request: web.BaseRequest, address: str) -> User | None:
        """Who somebody is without saying so: by certificate, or by sitting at this machine."""
        if (name := common_name(request.transport)) and (user := self.access.by_certificate(name)):
            return user
        return self.access.trusted("") if self._trusts(request, address) else None

    def _trusts(self, request: web.BaseRequest, address: str) -> bool:
        # A proxy on this machine speaks for others, who may be anywhere.
        forwarded = any(name in request.headers for name in _FORWARDED)
        return not forwarded and self.access.trust(address)


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header.partition("]")[0].lower() + "]"
    return header.rpartition(":")[0].lower() if ":" in header else header.lower()


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _unauthorized(what: str) -> HttpError:
    error = HttpError(401, "unauthorized", what, "send a name and password, or a bearer token")
    error.headers["WWW-Authenticate"] = _CHALLENGE
    return error


def _foreign() -> HttpError:
    return HttpError(403, "cross-origin", "requests of other web pages are refused")

"""Who calls: a password that is answered with a token, a token, or nothing where everybody is trusted."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import flight

from penstock.errors import SqlError
from penstock.gateway.access.access import Access
from penstock.gateway.base import User
from penstock.gateway.flight.faults import tells

MIDDLEWARE = "identity"
_HEADER = "authorization"
_OPEN = "penstock."
"""Actions that bring a proof of their own: those of workers."""


class NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Takes part in the older handshake without asking anything: headers say who it is."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def is_valid(self, token: bytes) -> bytes:  # noqa: ARG002
        return b""


class Identity(flight.ServerMiddleware):  # type: ignore[misc]
    """The user of one call; after a login by password, the token that is sent back."""

    def __init__(self, user: User, token: str | None = None) -> None:
        self.user = user
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {_HEADER: f"Bearer {self._token}"} if self._token else {}


class Identities(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Makes out who calls, for every call but those of workers."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @tells
    def start_call(self, info: Any, headers: Mapping[str, Sequence[Any]]) -> Identity:
        given = next((_text(v[0]) for name, v in headers.items() if name.lower() == _HEADER and v), "")
        scheme, _, rest = given.partition(" ")
        if scheme.lower() == "bearer":
            user = self._access.bearer(rest.strip())
            if user is not None:
                return Identity(user)
        elif scheme.lower() == "basic":
            return self._login(rest.strip())
        elif not given:
            # The peer's address is not known yet; where a server trusts, it listens on loopback alone.
            if self._access.trust("127.0.0.1"):
                return Identity(self._access.trusted(""))
            if info.method == flight.FlightMethod.GET_SCHEMA:
                # From there, no error has a kind (`tells_untraced`); from here, it does.
                raise unknown_caller()
            return Identity(NOBODY)
        raise SqlError("the token is void or has expired", sqlstate="28000", hint="log in again")

    def _login(self, text: str) -> Identity:
        try:
            # Some clients leave out the padding.
            name, _, password = base64.b64decode(text + "=" * (-len(text) % 4)).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise SqlError("the login is not in base64", sqlstate="28000") from None
        trusted = self._access.trust("127.0.0.1")
        user = self._access.trusted(name) if trusted else self._access.password(name, password)
        if user is None:
            raise SqlError(f'password authentication failed for user "{name}"', sqlstate="28P01")
        return Identity(user, self._access.issue(user))


NOBODY = User("", schemas=frozenset())
"""Whoever shows nothing. Only what brings a proof of its own is answered."""


def user_of(context: Any) -> User:
    """The user of a call; raises if there is none."""
    identity = context.get_middleware(MIDDLEWARE)
    if identity is None or identity.user is NOBODY:
        raise unknown_caller()
    user: User = identity.user
    return user


def unknown_caller() -> SqlError:
    return SqlError(
        "this server wants to know who you are",
        sqlstate="28000",
        hint="give a user and a password, or a token (`penstock users add NAME` makes a user)",
    )


def is_open(action: str) -> bool:
    """Whether an action is answered to callers that are no users."""
    return action.startswith(_OPEN)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)

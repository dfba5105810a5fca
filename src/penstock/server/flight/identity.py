"""Who calls: a password that is answered with a token, a token, or nothing where everybody is trusted."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from cryptography.fernet import Fernet, InvalidToken
from pyarrow import flight

from penstock.errors import SqlError
from penstock.server.access.access import TOKEN_TTL, Access
from penstock.server.base import User
from penstock.server.flight.faults import tells

MIDDLEWARE = "identity"
_HEADER = "authorization"
_UNDECIDED = "undecided."
_VOID = "the token is void or has expired"
_OPEN = "penstock."
"""Actions that bring a proof of their own: those of workers."""


class NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Takes part in the older handshake without asking anything: headers say who it is."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def is_valid(self, token: bytes) -> bytes:  # noqa: ARG002
        return b""


class CallIdentity(flight.ServerMiddleware):  # type: ignore[misc]
    """The user of one call; after a login by password, the token that is sent back.

    ``decide`` is set while it is not known yet whether the login is right: it takes the caller's address.
    """

    def __init__(
        self, user: User, token: str | None = None, decide: Callable[[str], User] | None = None
    ) -> None:
        self.user = user
        self.decide = decide
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {_HEADER: f"Bearer {self._token}"} if self._token else {}


class Identities(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Makes out who calls, for every call but those of workers."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._undecided = Fernet(Fernet.generate_key())

    @tells
    def start_call(self, info: Any, headers: Mapping[str, Sequence[Any]]) -> CallIdentity:
        given = next((_text(v[0]) for name, v in headers.items() if name.lower() == _HEADER and v), "")
        scheme, _, rest = given.partition(" ")
        if scheme.lower() == "bearer":
            if rest.startswith(_UNDECIDED):
                return self._opened(rest.strip())
            user = self._access.bearer(rest.strip())
            if user is not None:
                return CallIdentity(user)
        elif scheme.lower() == "basic":
            return self._login(rest.strip())
        elif not given:
            # The peer's address is not known yet; where a server trusts, it listens on loopback alone.
            if self._access.trust("127.0.0.1"):
                return CallIdentity(self._access.trusted(""))
            if info.method == flight.FlightMethod.GET_SCHEMA:
                # From there, no error has a kind (`tells_untraced`); from here, it does.
                raise unknown_caller()
            return CallIdentity(NOBODY)
        raise SqlError(_VOID, sqlstate="28000", hint="log in again")

    def _login(self, text: str) -> CallIdentity:
        try:
            # Some clients leave out the padding.
            name, _, password = base64.b64decode(text + "=" * (-len(text) % 4)).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise SqlError("the login is not in base64", sqlstate="28000") from None
        if self._access.trust("127.0.0.1"):
            user = self._access.trusted(name)
            return CallIdentity(user, self._access.issue(user))
        try:
            self._access.patience(name, "")
        except SqlError:
            return self._undecided_yet(name, password, self._sealed(name, password))
        user = self._right(name, password, "")
        return CallIdentity(user, self._access.issue(user))

    def _right(self, name: str, password: str, address: str) -> User:
        user = self._access.password(name, password, address)
        if user is None:
            raise SqlError(f'password authentication failed for user "{name}"', sqlstate="28P01")
        return user

    # Where a call comes from is known after its headers were answered. So logins are counted by user alone
    # here, and somebody who guesses would keep everybody out. After too many failures, a login is therefore
    # neither taken nor refused: what is sent back is decided on when it is used, by user and address.

    def _undecided_yet(self, name: str, password: str, token: str | None) -> CallIdentity:
        return CallIdentity(NOBODY, token, lambda address: self._right(name, password, address))

    def _sealed(self, name: str, password: str) -> str:
        return _UNDECIDED + self._undecided.encrypt(json.dumps([name, password]).encode()).decode()

    def _opened(self, token: str) -> CallIdentity:
        try:
            text = self._undecided.decrypt(token.removeprefix(_UNDECIDED), ttl=int(TOKEN_TTL))
        except InvalidToken:
            raise SqlError(_VOID, sqlstate="28000", hint="log in again") from None
        name, password = json.loads(text)
        return self._undecided_yet(name, password, None)


NOBODY = User("", schemas=frozenset())
"""Whoever shows nothing. Only what brings a proof of its own is answered."""


def user_of(context: Any) -> User:
    """The user of a call; raises if there is none."""
    identity = context.get_middleware(MIDDLEWARE)
    if identity is not None and identity.decide is not None:
        return cast("User", identity.decide(address_of(context.peer())))
    if identity is None or identity.user is NOBODY:
        raise unknown_caller()
    user: User = identity.user
    return user


def address_of(peer: str) -> str:
    """The address in what gRPC calls a peer: ``ipv4:127.0.0.1:5000``, ``ipv6:%5B::1%5D:5000``."""
    place = unquote(peer.partition(":")[2])
    return place.rpartition(":")[0].strip("[]") or place


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

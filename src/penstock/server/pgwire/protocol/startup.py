"""How a connection begins: encryption, version, and who the client is."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ssl import SSLContext
from typing import Protocol, TypeVar

from penstock.errors import SqlError
from penstock.server.base import DATABASE, User
from penstock.server.network.certificates import ServerCertificate, common_name
from penstock.server.pgwire.protocol import messages, requests
from penstock.server.pgwire.protocol.channel import Channel, Gone
from penstock.server.session_settings import Settings

NEWEST = 2
"""The newest minor version of protocol 3 that is spoken here."""
_LONG_KEY = 32
_SHORT_KEY = 4
_ATTEMPTS = 4
_Result = TypeVar("_Result")


class Block(Protocol):
    """Runs in a thread what may block."""

    def __call__(self, work: Callable[[], _Result]) -> Awaitable[_Result]: ...


class Scram(Protocol):
    """A login by SCRAM."""

    def mechanisms(self, tls: bool = ...) -> tuple[str, ...]: ...
    def first(self, data: bytes, mechanism: str = ...) -> bytes: ...
    def final(self, data: bytes) -> bytes: ...
    @property
    def user(self) -> User: ...


class Authenticator(Protocol):
    """Who lets clients in; see `penstock.server.access`. All of it may block."""

    def trust(self, address: str) -> bool: ...
    def trusted(self, name: str) -> User: ...
    def scram(self, name: str, address: str = ..., *, binding: bytes | None = ...) -> Scram: ...
    def by_certificate(self, common_name: str) -> User | None: ...


@dataclass(frozen=True, slots=True)
class Key:
    """What a client shows to cancel its statement from another connection."""

    process: int
    secret: bytes

    def matches(self, secret: bytes) -> bool:
        return hmac.compare_digest(self.secret, secret)


@dataclass(frozen=True, slots=True)
class Greeted:
    """A client that has come in."""

    user: User
    settings: Settings
    key: Key


class Greeter:
    """Receives one client. ``block`` runs what may block in a thread."""

    def __init__(
        self,
        channel: Channel,
        access: Authenticator,
        address: str,
        *,
        tls: ServerCertificate | None,
        timeout: float,
        block: Block,
    ) -> None:
        self._channel = channel
        self._access = access
        self._address = address
        self._tls = tls
        self._timeout = timeout
        self._block = block
        self._secure = channel.transport.get_extra_info("ssl_object") is not None

    async def opening(self) -> requests.Startup | requests.CancelRequest:
        """What the client came for, after the encryption that it asked for."""
        for _ in range(_ATTEMPTS):
            message = await self._channel.receive()
            if isinstance(message, requests.Startup | requests.CancelRequest):
                return message
            if isinstance(message, requests.SslRequest) and self._tls is not None and not self._secure:
                await self._encrypt(self._tls.context)
            else:
                self._channel.write(b"N")
        raise requests.ProtocolError("too many requests for encryption", fatal=True)

    async def _encrypt(self, context: SSLContext) -> None:
        # Whatever came before TLS was sent by anybody, and must not be taken for the client's.
        if not self._channel.untouched:
            raise requests.ProtocolError(
                "received unencrypted data after SSL request",
                hint="This could be somebody between the client and the server.",
                fatal=True,
            )
        self._channel.write(b"S")
        await self._channel.secure(context, self._timeout)
        self._secure = True

    async def greet(self, startup: requests.Startup, process: int) -> Greeted:
        """Agree on the version, find out who the client is, and what it wants set."""
        name = startup.parameters.get("user", "")
        if not name:
            raise SqlError("no PostgreSQL user name specified in startup packet", sqlstate="28000")
        if startup.parameters.get("replication", "off").lower() not in ("off", "false", "no", "0"):
            raise SqlError("replication is not supported", sqlstate="0A000")
        minor = self._negotiate(startup)
        user = await self._authenticate(name)
        database = startup.parameters.get("database") or name
        if database not in (DATABASE, "postgres", name):
            raise SqlError(
                f'database "{database}" does not exist',
                sqlstate="3D000",
                hint=f'the only database is "{DATABASE}"',
            )
        settings = _settings(startup, user)
        key = Key(process, secrets.token_bytes(_LONG_KEY if minor >= NEWEST else _SHORT_KEY))
        return Greeted(user, settings, key)

    def _negotiate(self, startup: requests.Startup) -> int:
        unknown = [name for name in startup.parameters if name.startswith("_pq_.")]
        if startup.minor > NEWEST or unknown:
            minor = min(startup.minor, NEWEST)
            self._channel.write(messages.negotiate_protocol_version(minor, unknown))
        return min(startup.minor, NEWEST)

    async def _authenticate(self, name: str) -> User:
        access, address = self._access, self._address
        shown = common_name(self._channel.transport)
        if shown == name:
            user = await self._block(lambda: access.by_certificate(name))
            if user is not None:
                return user
        if await self._block(lambda: access.trust(address)):
            return await self._block(lambda: access.trusted(name))
        binding = self._tls.binding if self._tls is not None and self._secure else None
        scram = await self._block(lambda: access.scram(name, address, binding=binding))
        self._channel.write(messages.authentication_sasl(scram.mechanisms(self._secure)))
        mechanism, first = (await self._password()).sasl_initial()
        if first is None:
            self._channel.write(messages.authentication_sasl_continue(b""))
            first = (await self._password()).data
        opening = first
        challenge = await self._block(lambda: scram.first(opening, mechanism))
        self._channel.write(messages.authentication_sasl_continue(challenge))
        proof = (await self._password()).data
        outcome = await self._block(lambda: scram.final(proof))
        self._channel.write(messages.authentication_sasl_final(outcome))
        return scram.user

    async def _password(self) -> requests.Password:
        message = await self._channel.receive()
        if isinstance(message, requests.Terminate):
            # What a client does that has no password to give: it will ask for one, and come back.
            raise Gone
        if not isinstance(message, requests.Password):
            raise requests.ProtocolError("expected an answer to the request for a password", fatal=True)
        return message


_NOT_SETTINGS = ("user", "database", "options", "replication")


def _settings(startup: requests.Startup, user: User) -> Settings:
    wanted = {
        name: value
        for name, value in startup.parameters.items()
        if name not in _NOT_SETTINGS and not name.startswith("_pq_.")
    }
    fixed = {"session_authorization": user.name, "is_superuser": "on" if user.admin else "off"}
    return Settings({**startup.options, **wanted}, fixed=fixed)


async def within(seconds: float, work: Awaitable[_Result]) -> _Result:
    """Like the work, but not for longer than this."""
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        raise SqlError("canceling authentication due to timeout", sqlstate="57014") from None

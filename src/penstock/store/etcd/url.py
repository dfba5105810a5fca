"""Where an etcd store is: ``etcd://[user[:password]@]h1[:port],h2[:port],[::1]:2379/prefix``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from penstock.config import shown_url
from penstock.errors import UsageError

_SCHEME = "etcd://"
_PORT = 2379
_PREFIX = "penstock"
_FORM = "write etcd://host1,host2:2379,[::1]:2379/prefix, with user:password@ before the hosts if need be"
_ENDPOINT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/@?#,]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """Endpoints as ``host:port``, the prefix of all keys without slashes around it, and who asks."""

    endpoints: tuple[str, ...]
    prefix: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The address as one writes it, without the password."""
        user = "" if self.user is None else f"{quote(self.user, safe='')}@"
        return f"{_SCHEME}{user}{','.join(self.endpoints)}/{quote(self.prefix)}"


def parse(url: str) -> EtcdAddress:
    """What ``url`` says. Reserved characters of user, password and prefix are percent-encoded there."""
    if not url.startswith(_SCHEME):
        raise UsageError(f"{shown_url(url)!r} is not the URL of an etcd store", hint=_FORM)
    authority, _, prefix = url.removeprefix(_SCHEME).partition("/")
    if "@" in prefix:
        raise UsageError(
            "the URL of an etcd store has an @ after a /",
            hint="percent-encode what is special in the password (%2F for /), or leave it out and set "
            "PENSTOCK_STORE_PASSWORD",
        )
    who, at, hosts = authority.rpartition("@")
    user, colon, password = who.partition(":")
    return address(
        hosts.split(","),
        unquote(prefix).strip("/") or _PREFIX,
        unquote(user) if at else None,
        unquote(password) if colon else None,
    )


def address(
    endpoints: Sequence[str], prefix: str, user: str | None = None, password: str | None = None
) -> EtcdAddress:
    """The same from its parts, which are checked; an endpoint without a port gets etcd's own."""
    prefix = prefix.strip("/")
    if not prefix.isprintable() or "" in prefix.split("/"):
        raise UsageError(f"{prefix!r} cannot be the prefix of a store", hint=_FORM)
    if user == "" or (user is None and password is not None):
        raise UsageError("a password for etcd needs a user name", hint=_FORM)
    if not endpoints:
        raise UsageError("no endpoint of etcd is named", hint=_FORM)
    return EtcdAddress(tuple(_endpoint(each) for each in endpoints), prefix, user, password)


def _endpoint(text: str) -> str:
    found = _ENDPOINT.fullmatch(text)
    port = int(found["port"] or _PORT) if found else 0
    if found is None or not 0 < port < 65536:
        shown = text if "@" not in text and text.count(":") < 2 else "what stands before the /"
        raise UsageError(f"{shown!r} is not the endpoint of an etcd node", hint=_FORM)
    return f"{found['host']}:{port}"

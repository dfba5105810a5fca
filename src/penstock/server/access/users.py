"""Users in the coordination store: one document each, changed by compare-and-set."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.clocks import wall_clock
from penstock.core.codec import SPACED, DocumentFormat, Members
from penstock.core.names import RULE, is_name
from penstock.errors import CorruptFile, UsageError
from penstock.server.access.passwords import Verifier, check
from penstock.server.base import User
from penstock.store.base import Document, Store

PREFIX = "gateway/users/"
SIGNING = "gateway/secret"
LONGEST_NAME = 63
_RESERVED = ("public", "none", "user", "postgres")


@dataclass(frozen=True, slots=True)
class Account:
    """A user as it is kept. ``verifier`` None is one who comes with a client certificate only."""

    name: str
    verifier: Verifier | None = field(default=None, repr=False)
    admin: bool = False
    writes: bool = False
    schemas: frozenset[str] | None = None
    enabled: bool = True
    created: str = ""

    @property
    def user(self) -> User:
        return User(self.name, self.admin, self.writes, self.schemas)

    @property
    def stamp(self) -> str:
        """Changes with the password, and if another user gets the same name."""
        key = self.verifier.stored_key if self.verifier else b""
        return hashlib.sha256(key + self.created.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """What may be shown: nothing of the password."""
        return {
            "name": self.name,
            "admin": self.admin,
            "writes": self.admin or self.writes,
            "schemas": None if self.admin or self.schemas is None else sorted(self.schemas),
            "enabled": self.enabled,
            "password": self.verifier is not None,
            "created": self.created,
        }


def _written(found: Members) -> Members:
    verifier = found["verifier"]
    return {
        "name": found["name"],
        "admin": found["admin"],
        "writes": found["writes"],
        "schemas": None if found["schemas"] is None else sorted(found["schemas"]),
        "enabled": found["enabled"],
        "password": verifier and {n: v.hex() if isinstance(v, bytes) else v for n, v in verifier.items()},
        "created": found["created"],
    }


def _read(found: Members) -> Members:
    password = found.pop("password")
    return {**found, "verifier": password and {n: _bytes(n, v) for n, v in password.items()}}


def _bytes(name: str, value: Any) -> Any:
    return value if name == "iterations" else bytes.fromhex(value)


ACCOUNT = DocumentFormat(
    Account,
    "a user",
    text=SPACED,
    ignores_unknown=True,
    pack=_written,
    unpack=_read,
    hint="drop the user and add it again",
    refusal=CorruptFile,
)


class Users:
    """The users of a store. Safe for many threads and processes; raises `UsageError` for what cannot be."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self,
        name: str,
        password: str | None = None,
        *,
        admin: bool = False,
        writes: bool = False,
        schemas: Iterable[str] | None = None,
    ) -> Account:
        """Make a user. One without a password can only come with a client certificate."""
        verifier = None if password is None else Verifier.of(check(password))
        granted = None if schemas is None else frozenset(schemas)
        account = Account(check_name(name), verifier, admin, writes, granted, True, wall_clock())
        if self._store.cas(PREFIX + name, 0, ACCOUNT.encode(account)) is None:
            raise UsageError(f"user {name!r} exists", hint=f"`penstock users alter {name}` changes it")
        return account

    def grant(
        self,
        name: str,
        *,
        admin: bool | None = None,
        writes: bool | None = None,
        schemas: Iterable[str] | None = None,
        every_schema: bool = False,
        enabled: bool | None = None,
    ) -> Account:
        """Change what a user may do; what is None stays."""

        def change(account: Account) -> Account:
            granted = account.schemas if schemas is None else frozenset(schemas)
            return replace(
                account,
                admin=account.admin if admin is None else admin,
                writes=account.writes if writes is None else writes,
                schemas=None if every_schema else granted,
                enabled=account.enabled if enabled is None else enabled,
            )

        return self.alter(name, change)

    def set_password(self, name: str, password: str) -> Account:
        """Replace a password. Tokens that were issued before are void."""
        verifier = Verifier.of(check(password))
        return self.alter(name, lambda account: replace(account, verifier=verifier))

    def alter(self, name: str, change: Callable[[Account], Account]) -> Account:
        """Change a user as it is now; ``change`` may be called again when somebody else was faster."""
        while True:
            document = self._document(name)
            after = change(_decode(document))
            if self._store.cas(document.key, document.version, ACCOUNT.encode(after)) is not None:
                return after

    def drop(self, name: str, *, last: bool = False) -> Account:
        """Remove a user. ``last`` allows to remove the only one, after which trust may begin again."""
        while True:
            document = self._document(name)
            if not last and len(self._store.list(PREFIX, limit=2)) == 1:
                raise UsageError(
                    f"{name!r} is the last user: without any, a server that listens on loopback lets "
                    "everybody on its machine in as an admin",
                    hint=f"add another first, or `penstock users drop {name} --last`",
                )
            if self._store.cas(document.key, document.version, None) is not None:
                try:
                    return _decode(document)
                except CorruptFile:
                    # Dropping it is the way out.
                    return Account(name)

    def find(self, name: str) -> Account | None:
        """The user of a name, disabled or not."""
        if not is_name(name, longest=LONGEST_NAME):
            return None
        document = self._store.get(PREFIX + name)
        return _decode(document) if document else None

    def list(self) -> Sequence[Account]:
        """All users, by name."""
        return [_decode(document) for document in self._store.scan(PREFIX)]

    def exist(self) -> bool:
        """Whether there is any user, disabled ones included."""
        return bool(self._store.list(PREFIX, limit=1))

    def secret(self) -> bytes:
        """What all servers of a store sign with; made when it is first asked for."""
        while True:
            if document := self._store.get(SIGNING):
                return document.value
            self._store.cas(SIGNING, 0, secrets.token_bytes(32))

    def _document(self, name: str) -> Document:
        document = self._store.get(PREFIX + name) if is_name(name) else None
        if document is None:
            raise UsageError(f"there is no user {name!r}", hint="`penstock users list` shows all")
        return document


def check_name(name: str) -> str:
    """The name, if a user can have it."""
    if not is_name(name, longest=LONGEST_NAME):
        raise UsageError(f"{name!r} cannot be a user's name", hint=RULE.replace("100", str(LONGEST_NAME)))
    if name.lower() in _RESERVED or name.lower().startswith("pg_"):
        raise UsageError(f"{name!r} has a meaning of its own in PostgreSQL", hint="choose another name")
    return name


def _decode(document: Document) -> Account:
    return ACCOUNT.decode(document.key, document.value)

"""The doorkeeper of every protocol: who comes in, with what, and as whom."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.core.names import is_name
from penstock.errors import SqlError, StoreUnavailable
from penstock.server.access import tokens
from penstock.server.access.passwords import Verifier, mock, sign
from penstock.server.access.scram import ScramServer, wrong_password
from penstock.server.access.throttle import Throttle
from penstock.server.access.users import LONGEST_NAME, Account, Users
from penstock.server.base import User

FRESH = 1.0
"""Seconds after which a change that was made elsewhere is seen."""
REMEMBERED = 60.0
"""Seconds for which a password that was right is not hashed again."""
TOKEN_TTL = 3600.0
_UNASKED = 5.0
"""Seconds for which a store that does not answer is not asked again about somebody who is in."""
_MOST = 1000

_Value = TypeVar("_Value")


class _Recent(Generic[_Value]):
    """Values by name that were read a moment ago, the newest of them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: OrderedDict[str, tuple[float, _Value]] = OrderedDict()

    def get(self, name: str, now: float) -> tuple[_Value] | None:
        """The value in a tuple, since it may be None itself."""
        found = self._values.get(name)
        return (found[1],) if found is not None and 0 <= now - found[0] < self._seconds else None

    def put(self, name: str, value: _Value, now: float) -> None:
        self._values.pop(name, None)
        self._values[name] = (now, value)
        while len(self._values) > _MOST:
            self._values.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A password that was right, as a digest that means nothing outside this process."""

    digest: bytes
    verifier: Verifier


class Access:
    """Lets clients in. Safe for many threads; it blocks, as the store does.

    ``host`` is the address that the server is bound to, ``tls`` whether it speaks TLS. All methods raise
    `SqlError` 57P03 while the store does not answer.
    """

    def __init__(
        self,
        users: Users,
        *,
        host: str = "127.0.0.1",
        tls: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.users = users
        self.failures = 0
        """How many logins failed."""
        self._host = host
        self._tls = tls
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._throttle = Throttle()
        self._accounts: _Recent[Account | None] = _Recent(FRESH)
        self._exist: _Recent[bool] = _Recent(FRESH)
        self._checked: _Recent[_Checked] = _Recent(REMEMBERED)
        self._own = secrets.token_bytes(32)
        self._secret: bytes | None = None
        self._unasked = -_UNASKED

    # trust

    def trust(self, address: str) -> bool:
        """Whether a client from this address needs no password.

        Only if it is on this machine, nobody can reach the server from another, and no user was made yet.
        """
        return is_loopback(self._host) and is_loopback(address) and not self._any()

    def trusted(self, name: str) -> User:
        """The user that a trusted client is."""
        return User(name or "penstock", admin=True)

    def notice(self) -> str:
        """What to say at start about who may come in."""
        add = "`penstock users add NAME --admin`"
        if self.trust("127.0.0.1"):
            return (
                "no users: everybody on this machine comes in without a password, as an admin, since the "
                f"server listens on {self._host} only; {add} ends that"
            )
        if not self._any():
            return f"no users, and the server listens on {self._host}: nobody can come in before {add}"
        said = "clients need a password, a token or a client certificate"
        if not self._tls and not is_loopback(self._host):
            return f"{said}; results cross the network unencrypted: configure [tls]"
        return said

    # coming in

    def find(self, name: str) -> Account | None:
        """The account of a name as it was a second ago at most, disabled or not."""
        if not is_name(name, longest=LONGEST_NAME):
            return None
        now = self._clock()
        with self._lock:
            found = self._accounts.get(name, now)
        if found is not None:
            return found[0]
        account = _answered(lambda: self.users.find(name))
        with self._lock:
            self._accounts.put(name, account, now)
        return account

    def scram(self, name: str, address: str = "", *, binding: bytes | None = None) -> ScramServer:
        """A login by SCRAM; it goes the same way whether the user exists or not.

        ``binding`` is `scram.end_point` of the certificate that the client was shown, if there is one.
        Raises `SqlError` 28000 for one who has failed too often.
        """
        self.patience(name, address)
        account = self.find(name)
        verifier = account.verifier if account else None

        def decide(right: bool) -> User | None:
            return self._outcome(name, address, account if right and verifier else None)

        return ScramServer(name, verifier or self._mock(name), decide, binding=binding)

    def password(self, name: str, password: str, address: str = "") -> User | None:
        """The user, if this is the password; raises `SqlError` 28000 for one who has failed too often."""
        account = self.find(name)
        verifier = account.verifier if account else None
        digest = sign(self._own, f"{name}\0{password}".encode(errors="backslashreplace"))
        now = self._clock()
        with self._lock:
            seen = self._checked.get(name, now)
        if seen and seen[0].verifier == verifier and hmac.compare_digest(seen[0].digest, digest):
            return account.user if account and account.enabled else None
        self.patience(name, address)
        right = (verifier or self._mock(name)).matches(password) and verifier is not None
        try:
            user = self._outcome(name, address, account if right else None)
        except SqlError:
            return None
        if user is not None and verifier is not None:
            with self._lock:
                self._checked.put(name, _Checked(digest, verifier), now)
        return user

    def by_certificate(self, common_name: str) -> User | None:
        """The user whom a client certificate that was checked names."""
        account = self.find(common_name)
        return account.user if account and account.enabled else None

    def current(self, user: User) -> User:
        """Somebody who came in before, with the grants of now; raises `SqlError` 28000 for one who is gone.

        While the store does not answer, what a user may do stays as it was: who is in goes on working.
        """
        if self._clock() - self._unasked < _UNASKED:
            return user
        try:
            account = self.find(user.name)
            if account is None and self.trust("127.0.0.1"):
                return user
        except SqlError:
            self._unasked = self._clock()
            return user
        if account is None or not account.enabled:
            raise SqlError(
                f'user "{user.name}" was removed or disabled',
                sqlstate="28000",
                hint="ask an admin, then log in",
            )
        return account.user

    def patience(self, name: str, address: str) -> None:
        """Raise `SqlError` 28000 if this user fails too often from this address."""
        with self._lock:
            wait = self._throttle.wait(address, name, self._clock())
        if wait > 0:
            raise SqlError(
                f'too many failed logins for user "{name}"',
                sqlstate="28000",
                hint=f"try again in {wait:.0f} s" if wait >= 1 else "try again in a second",
            )

    # tokens

    def issue(self, user: User, ttl: float = TOKEN_TTL) -> str:
        """A token that every server of this store accepts for ``ttl`` seconds."""
        account = self.find(user.name)
        stamp = account.stamp if account else ""
        return tokens.seal(self._signing(), tokens.TokenClaim(user.name, self._wall() + ttl, stamp))

    def bearer(self, token: str) -> User | None:
        """The user of a token with the grants of now; None if the token is void.

        It is when it has expired, when the password was changed, and when the user is disabled or gone.
        """
        claim = tokens.unseal(self._signing(), token, self._wall())
        if claim is None:
            with self._lock:
                self.failures += 1
            return None
        if not claim.stamp:
            # It was issued to a trusted client, and is worth what trust is.
            return self.trusted(claim.name) if self.trust("127.0.0.1") else None
        account = self.find(claim.name)
        right = account is not None and account.enabled and hmac.compare_digest(account.stamp, claim.stamp)
        return account.user if account and right else None

    def _outcome(self, name: str, address: str, account: Account | None) -> User | None:
        """Remember how a login went; ``account`` is None if it failed."""
        with self._lock:
            if account is None:
                self.failures += 1
                self._throttle.failed(address, name, self._clock())
                return None
            self._throttle.succeeded(address, name)
        if not account.enabled:
            raise SqlError(
                f'user "{name}" is disabled', sqlstate="28000", hint=f"`penstock users alter {name} --enable`"
            )
        return account.user

    def _any(self) -> bool:
        now = self._clock()
        with self._lock:
            found = self._exist.get("", now)
        if found is not None:
            return found[0]
        exist = _answered(self.users.exist)
        with self._lock:
            self._exist.put("", exist, now)
        return exist

    def _mock(self, name: str) -> Verifier:
        return mock(self._signing(), name)

    def _signing(self) -> bytes:
        if self._secret is None:
            self._secret = _answered(self.users.secret)
        return self._secret


def is_loopback(address: str) -> bool:
    """Whether an address is of this machine alone."""
    host = address.strip("[]").partition("%")[0]
    if host == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def _answered(ask: Callable[[], _Value]) -> _Value:
    try:
        return ask()
    except StoreUnavailable as error:
        raise SqlError(
            f"users cannot be looked up: {error.what}", sqlstate="57P03", hint="try again in a moment"
        ) from error


__all__ = ["FRESH", "REMEMBERED", "TOKEN_TTL", "Access", "is_loopback", "wrong_password"]

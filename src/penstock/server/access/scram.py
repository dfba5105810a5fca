"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, 7677, 5929), without any I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import SqlError
from penstock.server.access.passwords import Verifier, sign
from penstock.server.base import User

PLAIN = "SCRAM-SHA-256"
PLUS = "SCRAM-SHA-256-PLUS"
_BINDING = "p=tls-server-end-point"
_LONGEST = 4096
_NONCE = 18


@dataclass(frozen=True, slots=True)
class _Opening:
    """What was said until now: both sides sign it."""

    header: bytes
    """How the client binds to its channel."""
    bare: str
    answer: str
    nonce: str


class ScramServer:
    """One login. `first` and `final` take what the client sends and give what to answer.

    Both raise `SqlError`: 28P01 for a wrong password, 08P01 for what is no SCRAM message. ``decide`` is told
    whether the password was right, once, and names the user who has come in; it may refuse with an error.
    """

    def __init__(
        self,
        name: str,
        verifier: Verifier,
        decide: Callable[[bool], User | None],
        *,
        binding: bytes | None = None,
        nonce: str | None = None,
    ) -> None:
        self._name = name
        self._verifier = verifier
        self._decide = decide
        self._binding = binding
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(_NONCE)).decode()
        self._mechanism = PLAIN
        self._opening: _Opening | None = None
        self._user: User | None = None

    @property
    def user(self) -> User:
        """Who has come in; only after `final` has returned."""
        if self._user is None:
            raise wrong_password(self._name)
        return self._user

    def mechanisms(self, tls: bool = True) -> tuple[str, ...]:
        """What to offer: with binding to the channel where there is one to bind to."""
        return (PLUS, PLAIN) if tls and self._binding is not None else (PLAIN,)

    def first(self, data: bytes, mechanism: str = PLAIN) -> bytes:
        """The client's first message; the answer tells salt and iterations."""
        if mechanism not in self.mechanisms():
            raise _malformed(f"the client chose {mechanism!r}, which was not offered")
        self._mechanism = mechanism
        text = _text(data)
        flag, comma, rest = text.partition(",")
        authorized, second, bare = rest.partition(",")
        if not (comma and second):
            raise _malformed("its first message has no header")
        if authorized:
            raise SqlError("logging in as one user to act as another is not supported", sqlstate="0A000")
        self._check_flag(flag)
        fields = bare.split(",")
        if len(fields) < 2 or not fields[0].startswith("n=") or not _is_nonce(fields[1]):
            raise _malformed("its first message has no nonce")
        nonce = fields[1][2:] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={nonce},s={salt},i={self._verifier.iterations}"
        self._opening = _Opening(f"{flag},,".encode(), bare, answer, nonce)
        return answer.encode()

    def final(self, data: bytes) -> bytes:
        """The client's proof; the answer is the server's, and `user` is known."""
        opening = self._opening
        if opening is None:
            raise _malformed("its proof comes before its first message")
        self._opening = None
        unsigned, found, proof = _text(data).rpartition(",p=")
        fields = unsigned.split(",")
        if not found or len(fields) < 2:
            raise _malformed("its last message has no proof")
        bound = base64.b64encode(opening.header + self._bound()).decode()
        if fields[0] != f"c={bound}" or fields[1] != f"r={opening.nonce}":
            # Somebody between the two sides has another certificate, or replays.
            self._decide(False)
            raise wrong_password(self._name)
        message = f"{opening.bare},{opening.answer},{unsigned}".encode()
        self._user = self._decide(self._is_proof(proof, message))
        if self._user is None:
            raise wrong_password(self._name)
        return b"v=" + base64.b64encode(sign(self._verifier.server_key, message))

    def _check_flag(self, flag: str) -> None:
        if self._mechanism == PLUS:
            if flag != _BINDING:
                raise _malformed("it binds to its channel by no way that is known here")
        elif flag.startswith("p="):
            raise _malformed("it binds to its channel with a mechanism that does not")
        elif flag == "y" and self._binding is not None:
            # It could bind, and believes that we cannot: somebody in between has hidden the offer.
            self._decide(False)
            raise SqlError(
                "SCRAM channel binding negotiation error",
                sqlstate="28000",
                hint="the client was not told that this server supports channel binding",
            )
        elif flag not in ("n", "y"):
            raise _malformed("its first message has an unknown flag")

    def _bound(self) -> bytes:
        return self._binding or b"" if self._mechanism == PLUS else b""

    def _is_proof(self, proof: str, message: bytes) -> bool:
        try:
            given = base64.b64decode(proof, validate=True)
        except (ValueError, binascii.Error):
            raise _malformed("its proof is not base64") from None
        signature = sign(self._verifier.stored_key, message)
        if len(given) != len(signature):
            raise _malformed("its proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        return hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key)


def end_point(certificate: bytes) -> bytes:
    """What a client binds to: the hash of the server's certificate (DER), as RFC 5929 picks it."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        algorithm = x509.load_der_x509_certificate(certificate).signature_hash_algorithm
    except UnsupportedAlgorithm:
        algorithm = None
    name = algorithm.name if algorithm is not None else "sha256"
    return hashlib.new("sha256" if name in ("md5", "sha1") else name, certificate).digest()


def wrong_password(name: str) -> SqlError:
    return SqlError(f'password authentication failed for user "{name}"', sqlstate="28P01")


def _malformed(why: str) -> SqlError:
    return SqlError(f"malformed SCRAM message: {why}", sqlstate="08P01")


def _text(data: bytes) -> str:
    if len(data) > _LONGEST:
        raise _malformed(f"it has more than {_LONGEST:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _malformed("it is not UTF-8") from None


def _is_nonce(field: str) -> bool:
    return field.startswith("r=") and len(field) > 2 and field.isascii() and field.isprintable()

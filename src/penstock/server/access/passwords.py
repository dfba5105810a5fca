"""What is kept of a password: enough to check it by SCRAM-SHA-256, too little to log in with.

RFC 5802 and 7677 say how.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from dataclasses import dataclass, field

from penstock.errors import UsageError

ITERATIONS = 15_000
"""A login costs either side about 5 ms."""
LONGEST = 1024
_SALT = 16
_GENERATED = 18
_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


@dataclass(frozen=True, slots=True)
class Verifier:
    """The salted keys of one password."""

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str, *, salt: bytes | None = None, iterations: int = ITERATIONS) -> Verifier:
        """A verifier of a password; the salt is a new one unless it is given."""
        salt = secrets.token_bytes(_SALT) if salt is None else salt
        salted = hashlib.pbkdf2_hmac("sha256", prepared(password), salt, iterations)
        client_key = sign(salted, b"Client Key")
        return cls(salt, iterations, hashlib.sha256(client_key).digest(), sign(salted, b"Server Key"))

    def matches(self, password: str) -> bool:
        """Whether this is the password. Takes the same time either way."""
        again = Verifier.of(password, salt=self.salt, iterations=self.iterations)
        return hmac.compare_digest(again.stored_key, self.stored_key)


def mock(secret: bytes, name: str) -> Verifier:
    """What an unknown user is asked with: the same salt each time, as for a known one; no password fits."""
    salt = sign(secret, b"salt of " + name.encode(errors="backslashreplace"))[:_SALT]
    return Verifier(salt, ITERATIONS, secrets.token_bytes(32), secrets.token_bytes(32))


def generate() -> str:
    """A password that nobody guesses, of characters that need no quotes anywhere."""
    return secrets.token_urlsafe(_GENERATED)


def check(password: str) -> str:
    """The password, if it can be one; else `UsageError`."""
    if not password or "\0" in password:
        raise UsageError("a password has at least one character, and no zero bytes", hint="choose another")
    if len(password.encode()) > LONGEST:
        raise UsageError(f"a password has at most {LONGEST:,} bytes", hint="choose a shorter one")
    return password


def sign(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def prepared(password: str) -> bytes:
    """The bytes that both sides hash: by SASLprep (RFC 4013) where that allows the password.

    Where it does not, they are taken as they are, which is what libpq does too.
    """
    raw = password.encode(errors="surrogateescape")
    if password.isascii():
        return raw
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in password
        if not stringprep.in_table_b1(char)
    )
    text = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not text or any(table(char) for char in text for table in _PROHIBITED) or not _one_way(text):
        return raw
    return text.encode()


def _one_way(text: str) -> bool:
    """Whether letters that run from right to left stand as they must: alone, and at both ends."""
    if not any(map(stringprep.in_table_d1, text)):
        return True
    ends = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    return ends and not any(map(stringprep.in_table_d2, text))

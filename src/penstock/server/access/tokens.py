"""Bearer tokens: who it is and until when, signed. Nothing about them is kept anywhere."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from dataclasses import dataclass

from penstock.server.access.passwords import sign

_KIND = "penstock1"
_LONGEST = 1024
LONGEST_LIFE = 86_400.0
"""Seconds for which a token can be issued."""
_SKEW = 300.0
"""Seconds by which clocks of servers may differ."""


@dataclass(frozen=True, slots=True)
class TokenClaim:
    """What a token says. ``stamp`` is of the account when it was issued, empty for a trusted client."""

    name: str
    expires: float
    stamp: str


def seal(secret: bytes, claim: TokenClaim) -> str:
    """A claim as a token."""
    body = _text(json.dumps([claim.name, claim.expires, claim.stamp]).encode())
    return f"{_KIND}.{body}.{_text(_signature(secret, body))}"


def unseal(secret: bytes, token: str, now: float) -> TokenClaim | None:
    """The claim of a token, if it was sealed with this secret and has not expired.

    One that would live longer than any is issued for was made under a clock that ran ahead, and is void.
    """
    kind, _, rest = token.partition(".")
    body, _, signature = rest.partition(".")
    if kind != _KIND or len(token) > _LONGEST or not token.isascii():
        return None
    if not hmac.compare_digest(signature, _text(_signature(secret, body))):
        return None
    try:
        name, expires, stamp = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, binascii.Error):
        return None
    return TokenClaim(name, expires, stamp) if now < expires <= now + LONGEST_LIFE + _SKEW else None


def _signature(secret: bytes, body: str) -> bytes:
    # The same secret has other uses: a token's signature must be of no use for them.
    return sign(sign(secret, b"bearer tokens"), body.encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

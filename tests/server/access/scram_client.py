"""A client's side of SCRAM, written from the RFC for tests."""

from __future__ import annotations

import base64
import hashlib
import hmac


def _sign(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


class ScramClient:
    def __init__(
        self, password: str, *, flag: str = "n", bound: bytes = b"", nonce: str = "abc", name: str = ""
    ):
        self.password = password.encode()
        self.header = f"{flag},,"
        self.bound = bound
        self.nonce = nonce
        self.bare = f"n={name},r={nonce}"
        self.signature = b""

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, answer: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        assert fields["r"].startswith(self.nonce)
        assert len(fields["r"]) > len(self.nonce)
        channel = base64.b64encode(self.header.encode() + self.bound).decode()
        unsigned = f"c={channel},r={fields['r']}"
        message = f"{self.bare},{answer.decode()},{unsigned}".encode()
        salt = base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password, salt, int(fields["i"]))
        key = _sign(salted, b"Client Key")
        signature = _sign(hashlib.sha256(key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self.signature = _sign(_sign(salted, b"Server Key"), message)
        return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()

    def believes(self, answer: bytes) -> bool:
        return answer == b"v=" + base64.b64encode(self.signature)

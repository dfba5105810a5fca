"""A throw-away certificate authority, and certificates of it, for servers that tests start."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from penstock.certs import making
from penstock.config.tls import Tls, certificates, private_key

_DAYS = 30


class Authority:
    """A certificate authority whose files stand in ``folder``."""

    def __init__(self, folder: Path, name: str = "test") -> None:
        self._folder = folder
        made = making.make_ca(name, _DAYS, datetime.now(UTC))
        key = private_key("ca", made.key, "")
        assert isinstance(key, EllipticCurvePrivateKey)
        self._signer = making.Signer(certificates("ca", made.certificates, "")[0], key)
        self.path = self._write("ca.pem", made.certificates)

    def issue(self, name: str, hosts: tuple[str, ...] = making.LOCAL) -> Tls:
        """A certificate for ``name`` that serves at ``hosts`` and may also be shown as a client."""
        made = making.issue(self._signer, name, hosts, _DAYS, datetime.now(UTC))
        cert = self._write(f"{name}.pem", made.certificates)
        return Tls(self.path, cert, self._write(f"{name}.key", made.key))

    def trusting(self, tls: Tls, other: Authority) -> Tls:
        """``tls`` for somebody who believes both authorities, so that only the other side can refuse it."""
        bundle = Path(self.path).read_bytes() + Path(other.path).read_bytes()
        return Tls(self._write("both.pem", bundle), tls.cert, tls.key)

    def _write(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return str(path)

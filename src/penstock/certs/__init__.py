"""A private certificate authority in a folder, for people who have none."""

from __future__ import annotations

from penstock.core.packages import need

need("cluster", "a certificate authority", "cryptography")

from penstock.certs.authority import CA_DAYS, NODE_DAYS, Authority, CertificateEntry  # noqa: E402

__all__ = ["CA_DAYS", "NODE_DAYS", "Authority", "CertificateEntry"]

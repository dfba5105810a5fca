"""A private certificate authority in a folder, for people who have none."""

from __future__ import annotations

from penstock.certs.authority import CA_DAYS, NODE_DAYS, Authority, Entry

__all__ = ["CA_DAYS", "NODE_DAYS", "Authority", "Entry"]

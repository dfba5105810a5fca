"""What a client's session knows and does: statements, portals, transactions, settings."""

from __future__ import annotations

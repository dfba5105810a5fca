"""The state of the system as tables: who takes part, what is owned, committed, run and asked."""

from __future__ import annotations

from penstock.server.system.provider import SystemTables

__all__ = ["SystemTables"]

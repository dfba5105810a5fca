"""Arrow Flight SQL: statements, prepared statements and metadata for every client that speaks Arrow."""

from __future__ import annotations

from penstock.server.flight.server import FlightSqlServer

__all__ = ["FlightSqlServer"]

"""Arrow Flight SQL: statements, prepared statements and metadata for every client that speaks Arrow."""

from __future__ import annotations

from penstock.gateway.flight.server import FlightSqlServer

__all__ = ["FlightSqlServer"]

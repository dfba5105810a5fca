"""SQL for clients that people have: the PostgreSQL protocol, Arrow Flight SQL and HTTP, in front of Spark."""

from __future__ import annotations

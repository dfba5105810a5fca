"""The HTTP interface: a REST API, metrics and probes. Described in ``docs/reference/http.md``."""

from __future__ import annotations

from penstock.core.packages import need

need("sql", "the SQL gateway")

from penstock.server.http.server import WebServer  # noqa: E402
from penstock.server.http.sources import Sources, StoreSources  # noqa: E402

__all__ = ["Sources", "StoreSources", "WebServer"]

"""The HTTP interface: a REST API, metrics and probes. ``docs/http.md`` describes it for its users."""

from __future__ import annotations

from penstock.gateway.web.server import WebServer
from penstock.gateway.web.sources import Sources, StoreSources

__all__ = ["Sources", "StoreSources", "WebServer"]

"""PostgreSQL's wire protocol."""

from __future__ import annotations

from penstock.core.packages import need

need("sql", "the SQL gateway")

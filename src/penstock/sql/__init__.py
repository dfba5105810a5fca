"""SQL as people write it: what a text holds, what a statement touches, and how Spark says the same."""

from __future__ import annotations

from penstock.core.packages import need

need("sql", "SQL")

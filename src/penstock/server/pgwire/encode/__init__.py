"""Arrow batches as PostgreSQL's fields and rows."""

from __future__ import annotations

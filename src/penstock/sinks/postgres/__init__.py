"""PostgreSQL: a batch is gathered in a table beside, and moved over in one transaction."""

from __future__ import annotations

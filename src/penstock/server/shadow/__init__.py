"""A real PostgreSQL that knows our tables but none of their rows: it answers questions about the catalog.

Rows of system tables come with the statement that asks for them.
"""

from __future__ import annotations

from penstock.server.shadow.feeding import TooManyRows
from penstock.server.shadow.postgres.link import Description
from penstock.server.shadow.shadow import Shadow

__all__ = ["Description", "Shadow", "TooManyRows"]

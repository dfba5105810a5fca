"""A real PostgreSQL that knows our tables but none of their rows: it answers questions about the catalog."""

from __future__ import annotations

from penstock.gateway.shadow.shadow import Description, Shadow

__all__ = ["Description", "Shadow"]

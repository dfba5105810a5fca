"""What the shadow's PostgreSQL knows of ours: twins of tables, views, roles."""

from __future__ import annotations

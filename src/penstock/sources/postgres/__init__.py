"""A PostgreSQL table as a source."""

from __future__ import annotations

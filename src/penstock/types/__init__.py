"""Typed tables, and how types of Arrow, Spark and PostgreSQL match."""

from __future__ import annotations

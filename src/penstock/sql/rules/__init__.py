"""How each piece of PostgreSQL's SQL is said in Spark's, by subject."""

from __future__ import annotations

"""Rules for queries: SELECT with its clauses, joins, aggregates, windows, subqueries."""

from __future__ import annotations

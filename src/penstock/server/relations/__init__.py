"""Everything that SQL can name, and what it is in Spark."""

from __future__ import annotations

from penstock.server.relations.relation import Provider, Relation
from penstock.server.relations.relations import Tables

__all__ = ["Provider", "Relation", "Tables"]

"""Everything that SQL can name, and what it is in Spark."""

from __future__ import annotations

from penstock.gateway.tables.provider import Provider
from penstock.gateway.tables.relation import Relation
from penstock.gateway.tables.tables import Tables

__all__ = ["Provider", "Relation", "Tables"]

"""Stateful, partitioned sources of streams."""

from __future__ import annotations

from penstock.sources.base import Part, Rows, StatefulSource
from penstock.sources.state import State

__all__ = ["Part", "Rows", "State", "StatefulSource"]

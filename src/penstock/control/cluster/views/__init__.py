"""A cluster as people see it."""

from __future__ import annotations

"""From text to words to trees, by PostgreSQL's rules."""

from __future__ import annotations

"""Rules for json and jsonb."""

from __future__ import annotations

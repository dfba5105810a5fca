"""Rules for dates, times and intervals."""

from __future__ import annotations

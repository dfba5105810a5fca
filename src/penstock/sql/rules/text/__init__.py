"""Rules for texts: functions, patterns, quoting, formats."""

from __future__ import annotations

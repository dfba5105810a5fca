"""Rules for values: constants, casts, operators, numbers, arrays."""

from __future__ import annotations

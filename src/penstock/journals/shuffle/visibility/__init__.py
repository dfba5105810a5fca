"""Which documents may be seen: transactions as a whole or not at all. Pure."""

from __future__ import annotations

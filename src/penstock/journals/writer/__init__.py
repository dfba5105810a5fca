"""Writing journals: producers, transactions, and who a producer is."""

from __future__ import annotations

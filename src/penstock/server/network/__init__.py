"""What all listeners share: sockets, certificates, byte budgets, threads."""

from __future__ import annotations

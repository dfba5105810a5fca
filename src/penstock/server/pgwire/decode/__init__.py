"""Parameters that clients send, as Python values."""

from __future__ import annotations

"""What people write a stream with."""

from __future__ import annotations

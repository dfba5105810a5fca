"""Files as sources: those that appear in a directory, and those that grow."""

from __future__ import annotations

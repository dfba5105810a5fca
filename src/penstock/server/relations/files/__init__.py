"""Tables over files: formats, paths, patterns, columns."""

from __future__ import annotations

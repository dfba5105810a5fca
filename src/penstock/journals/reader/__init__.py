"""Finding journals, reading them, and proving that they are whole."""

from __future__ import annotations

"""How answers look as text."""

from __future__ import annotations

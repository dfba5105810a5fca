"""The engine behind all protocols: what a statement asks for, who answers it, and its rows."""

from __future__ import annotations

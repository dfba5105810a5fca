"""The committed epochs: the log of them, their files, who still reads them, and when they go."""

from __future__ import annotations

"""``python -m demo``: a pipeline survives ``kill -9``, and its output is exact."""

from __future__ import annotations

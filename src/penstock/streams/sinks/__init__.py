"""Where the rows of a stream go."""

from __future__ import annotations

"""Reading journals on from where they stand."""

from __future__ import annotations

"""What documents mean, after all that their producers wrote before. Pure."""

from __future__ import annotations

"""The documents of a cluster in the store: how they are written, found and read."""

from __future__ import annotations

"""Results on their way to a client: their shape, large ones on disk, and slow readers."""

from __future__ import annotations

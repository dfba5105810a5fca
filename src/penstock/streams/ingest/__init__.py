"""From sources to the durable queue: an instance's part in each epoch."""

from __future__ import annotations

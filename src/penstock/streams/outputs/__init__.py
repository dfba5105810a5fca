"""From the queue to sinks: the outputs that an instance runs."""

from __future__ import annotations

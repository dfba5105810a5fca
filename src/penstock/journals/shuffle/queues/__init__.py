"""From run files to the documents of a queue, in the order of their clocks."""

from __future__ import annotations

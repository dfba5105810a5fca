"""What everything else rests on: names, row ranges, folders synced to disk, failpoints. No Spark."""

from __future__ import annotations

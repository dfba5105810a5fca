"""Several machines: a coordinator with Spark's own master and driver, and workers that join it."""

from __future__ import annotations

"""Parquet files with manifests: a table of our own, exactly once and readable at every epoch."""

from __future__ import annotations

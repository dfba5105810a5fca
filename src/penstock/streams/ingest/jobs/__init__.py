"""The Spark jobs of an epoch: tasks poll parts and read journals, and write rows to files."""

from __future__ import annotations

"""Pipelines over registered inputs: partition by partition, checkpointed between stages."""

from __future__ import annotations

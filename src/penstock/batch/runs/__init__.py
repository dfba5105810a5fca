"""What a run is, in the store and in storage: its record, plan, manifests, checkpoints and output."""

from __future__ import annotations

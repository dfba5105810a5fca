"""The rules of the control plane as pure functions over values: no clock, no store."""

from __future__ import annotations

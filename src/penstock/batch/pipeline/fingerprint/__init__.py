"""Fingerprints of code: what decides whether a checkpoint may be used again."""

from __future__ import annotations

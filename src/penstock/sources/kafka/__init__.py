"""Kafka topics as a source."""

from __future__ import annotations

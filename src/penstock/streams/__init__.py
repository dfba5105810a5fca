"""Streams: durable epochs of rows from stateful sources, and what is made of them on Spark."""

from __future__ import annotations

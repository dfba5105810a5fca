"""Statements at work: who may run now, on which session, and what became of them."""

from __future__ import annotations

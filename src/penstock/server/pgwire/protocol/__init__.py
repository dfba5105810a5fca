"""Bytes of PostgreSQL's protocol: messages in and out, and how a connection begins."""

from __future__ import annotations

"""The PostgreSQL server of the shadow: set up, started, guarded, connected to."""

from __future__ import annotations

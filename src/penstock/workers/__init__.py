"""Child processes with a Spark each, what they are told, and the supervisors that keep them running."""

from __future__ import annotations

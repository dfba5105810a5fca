"""The object store in a simulation of its own: real handles, a simulated bucket, virtual time, one seed."""

from __future__ import annotations

"""A deterministic simulation of a cluster: real nodes, a simulated store, virtual time, one seed."""

from __future__ import annotations

"""The cluster that coordinators form in the store, beside the one of those that own virtual nodes."""

from __future__ import annotations

from dataclasses import replace

from penstock.config import ClusterConfig

ROLE = "coordinator"


def own_cluster(config: ClusterConfig) -> ClusterConfig:
    """The cluster of the coordinators that belong to the cluster of ``config``."""
    return replace(config, name=f"{config.name}.gateway", vnodes=1)

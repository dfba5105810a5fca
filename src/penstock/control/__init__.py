"""Who does what: claims of partitions, the cluster and its epochs, the catalog."""

from __future__ import annotations

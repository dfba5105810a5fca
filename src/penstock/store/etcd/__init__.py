"""The store on etcd: documents as keys, sessions as leases, batches as one transaction."""

from __future__ import annotations

from penstock.core.packages import need

need("cluster", "a store in etcd")

from penstock.store.etcd.store import EtcdStore  # noqa: E402

__all__ = ["EtcdStore"]

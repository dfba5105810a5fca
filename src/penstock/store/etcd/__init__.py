"""The store on etcd: documents as keys, sessions as leases, batches as one transaction."""

from __future__ import annotations

from penstock.store.etcd.store import EtcdStore

__all__ = ["EtcdStore"]

"""The store on objects: every version of a document is an object that can be created only once."""

from __future__ import annotations

from penstock.store.objects.store import ObjectStore

__all__ = ["ObjectStore"]

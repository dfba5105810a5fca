"""The catalog: the ordered DDL that rebuilds every source, table, stream, view and sink.

`rules` holds what a change may do, as pure functions; `Catalog` carries changes out on a store; a
`Follower` keeps an instance the same as the catalog.
"""

from __future__ import annotations

from penstock.control.catalog.follow import Follower, Handler, replay
from penstock.control.catalog.manifest import Catalog
from penstock.control.catalog.model import CatalogEntry, Head, Logged, Manifest, Statement, StatementKind
from penstock.control.catalog.rules import CatalogChange, Create, Drop

__all__ = [
    "Catalog",
    "CatalogChange",
    "CatalogEntry",
    "Create",
    "Drop",
    "Follower",
    "Handler",
    "Head",
    "Logged",
    "Manifest",
    "Statement",
    "StatementKind",
    "replay",
]

"""The catalog: the ordered DDL that rebuilds every source, table, stream, view and sink.

`rules` holds what a change may do, as pure functions; `Catalog` carries changes out on a store; a
`Follower` keeps an instance the same as the catalog.
"""

from __future__ import annotations

from penstock.catalog.follow import Follower, Handler, replay
from penstock.catalog.manifest import Catalog
from penstock.catalog.model import Entry, Head, Kind, Logged, Manifest, Statement
from penstock.catalog.rules import Change, Create, Drop

__all__ = [
    "Catalog",
    "Change",
    "Create",
    "Drop",
    "Entry",
    "Follower",
    "Handler",
    "Head",
    "Kind",
    "Logged",
    "Manifest",
    "Statement",
    "replay",
]

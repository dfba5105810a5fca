"""Streams and how far they have read, as rows."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config import Config
from penstock.errors import UsageError
from penstock.server.system.shapes import TABLES, Row
from penstock.storage import Storage
from penstock.store.base import Store
from penstock.streams import registry
from penstock.streams.views import frontiers as looking
from penstock.streams.views.observer import StreamObserver


def streams(store: Store, storage: Storage, config: Config) -> Iterator[Row]:
    for name in registry.names(store):
        try:
            view = StreamObserver(store, storage, name, config.cluster, config.stream).look()
        except UsageError:
            continue  # it was dropped a moment ago
        yield TABLES["streams"].row(view)


def frontiers(store: Store, storage: Storage) -> Iterator[Row]:
    """How far each stream has read each of its journals."""
    for name in registry.names(store):
        try:
            view = looking.look(store, storage, name)
        except UsageError:
            continue  # it reads no journals, or was dropped a moment ago
        for journal in view.journals:
            yield TABLES["frontiers"].row(journal, stream=name, epoch=view.epoch)

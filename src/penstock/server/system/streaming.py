"""Streams and how far they have read, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.config import Config
from penstock.errors import UsageError
from penstock.server.system.shapes import moment
from penstock.storage import Storage
from penstock.store.base import Store
from penstock.streams import registry
from penstock.streams.views import frontiers as looking
from penstock.streams.views.observer import StreamObserver

Row = Mapping[str, Any]


def streams(store: Store, storage: Storage, config: Config) -> Iterator[Row]:
    for name in registry.names(store):
        try:
            view = StreamObserver(store, storage, name, config.cluster, config.stream).look()
        except UsageError:
            continue  # it was dropped a moment ago
        yield {
            "stream": view.name,
            "state": str(view.state),
            "wanted": str(view.wanted),
            "epoch": view.epoch,
            "oldest_epoch": view.oldest,
            "rows": view.rows,
            "bytes": view.bytes,
            "late": view.late,
            "speed": view.speed,
            "leader": view.leader,
            "instances": len(view.instances),
            "parts": view.parts,
            "finished": view.finished,
            "reason": view.reason or None,
            "created": moment(view.created),
        }


def frontiers(store: Store, storage: Storage) -> Iterator[Row]:
    """How far each stream has read each of its journals."""
    for name in registry.names(store):
        try:
            view = looking.look(store, storage, name)
        except UsageError:
            continue  # it reads no journals, or was dropped a moment ago
        for journal in view.journals:
            yield {
                "stream": name,
                "epoch": view.epoch,
                "source": journal.source,
                "journal": journal.journal,
                "read": journal.position.offset,
                "head": journal.head,
                "behind": journal.behind,
                "producers": len(journal.position.producers),
                "open_transactions": journal.open,
            }

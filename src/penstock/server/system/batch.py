"""Runs, their partitions and checkpoints, as rows."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.batch.runs import layout, manifests, views
from penstock.batch.runs import runs as registry
from penstock.batch.runs.manifests import CHECKPOINT, CheckpointManifest
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board, PartitionState
from penstock.core.ranges import PartitionName
from penstock.errors import CorruptFile
from penstock.server.system.shapes import TABLES, Row
from penstock.storage import Storage
from penstock.store.base import Store


def runs(store: Store) -> Iterator[Row]:
    for view in views.every(store):
        yield TABLES["runs"].row(view)


def partitions(store: Store) -> Iterator[Row]:
    for run, phase, board in _boards(store):
        for view in board.partitions():
            yield TABLES["partitions"].row(view, run=run.name, phase=phase)


def leases(store: Store) -> Iterator[Row]:
    """The claims that instances hold: each is a lease of a partition."""
    for run, phase, board in _boards(store):
        for view in board.partitions({PartitionState.CLAIMED}):
            name = f"{run.name} {PartitionName(phase, view.range)}"
            yield TABLES["leases"].row(view, kind="claim", name=name, sequence=None, ttl=None, since=None)


def checkpoints(store: Store) -> Iterator[Row]:
    for run, phase, board in _boards(store):
        storage = Storage(run.storage)
        for view in board.partitions(touched=True):
            for ref in sorted(view.checkpoints, key=lambda ref: ref.stage):
                place = run.place(phase)
                path = layout.checkpoint_manifest(place, view.range, ref.token, ref.stage, ref.digest)
                found, problem = _manifest(storage, path, ref.digest)
                tables = found.tables if found else {}
                yield TABLES["checkpoints"].row(
                    ref,
                    run=run.name,
                    phase=phase,
                    begin_row=view.range.begin,
                    end_row=view.range.end,
                    tables=list(tables),
                    rows=sum(table.rows for table in tables.values()) if found else None,
                    bytes=sum(f.bytes for t in tables.values() for f in t.files) if found else None,
                    problem=problem,
                )


def _boards(store: Store) -> Iterator[tuple[Run, int, Board]]:
    """The boards of all phases that are begun. A run that is being dropped has none any more."""
    for run in registry.every(store):
        for phase, board in enumerate(registry.boards(store, run)):
            yield run, phase, board


def _manifest(storage: Storage, path: str, digest: str) -> tuple[CheckpointManifest | None, str | None]:
    try:
        return manifests.fetch(storage, path, digest, CHECKPOINT), None
    except CorruptFile as error:
        return None, error.what

"""Runs, their partitions and checkpoints, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.batch.runs import layout, manifests
from penstock.batch.runs import runs as registry
from penstock.batch.runs.manifests import CHECKPOINT, CheckpointManifest
from penstock.batch.runs.runs import Run
from penstock.config import shown_url
from penstock.control.claims import Board, PartitionState
from penstock.errors import CorruptFile, RunError
from penstock.server.system.shapes import moment
from penstock.storage import Storage
from penstock.store.base import Store

Row = Mapping[str, Any]


def runs(store: Store) -> Iterator[Row]:
    for run in registry.every(store):
        summary = registry.summary(store, run)
        yield {
            "run": run.name,
            "pipeline": run.pipeline,
            "state": registry.state_of(summary),
            "rows": run.total_rows,
            "rows_completed": summary.completed.rows if summary else 0,
            "partition_rows": run.partition_rows,
            "partitions": summary.total.partitions if summary else None,
            "pending": summary.pending.partitions if summary else None,
            "claimed": summary.claimed.partitions if summary else None,
            "completed": summary.completed.partitions if summary else None,
            "poisoned": summary.poisoned.partitions if summary else None,
            "failures": summary.failures if summary else None,
            "outputs": list(run.outputs),
            "output": shown_url(run.output),
            "created": moment(run.created),
        }


def partitions(store: Store) -> Iterator[Row]:
    for run, board in _boards(store):
        for view in board.partitions():
            yield {
                "run": run.name,
                "begin_row": view.range.begin,
                "end_row": view.range.end,
                "state": str(view.state),
                "owner": view.owner or None,
                "token": view.token,
                "session": view.session or None,
                "alive": view.alive,
                "attempts": view.attempts,
                "checkpoint_stage": max((ref.stage for ref in view.checkpoints), default=None),
                "error": view.errors[-1].error if view.errors else None,
            }


def leases(store: Store) -> Iterator[Row]:
    """The claims that instances hold: each is a lease of a partition."""
    for run, board in _boards(store):
        for view in board.partitions({PartitionState.CLAIMED}):
            yield {
                "kind": "claim",
                "name": f"{run.name} {view.range}",
                "owner": view.owner,
                "token": view.token,
                "sequence": None,
                "ttl": None,
                "session": view.session,
                "alive": view.alive,
                "since": None,
            }


def checkpoints(store: Store) -> Iterator[Row]:
    for run, board in _boards(store):
        storage = Storage(run.storage)
        for view in board.partitions(touched=True):
            for ref in sorted(view.checkpoints, key=lambda ref: ref.stage):
                path = layout.checkpoint_manifest(run.key, view.range, ref.token, ref.stage, ref.digest)
                found, problem = _manifest(storage, path, ref.digest)
                tables = found.tables if found else {}
                yield {
                    "run": run.name,
                    "begin_row": view.range.begin,
                    "end_row": view.range.end,
                    "stage": ref.stage,
                    "token": ref.token,
                    "tables": list(tables),
                    "rows": sum(table.rows for table in tables.values()) if found else None,
                    "bytes": sum(f.bytes for t in tables.values() for f in t.files) if found else None,
                    "problem": problem,
                }


def _boards(store: Store) -> Iterator[tuple[Run, Board]]:
    for run in registry.every(store):
        try:
            yield run, Board.open(store, run.key)
        except RunError:
            continue  # it was not begun, or is being dropped


def _manifest(storage: Storage, path: str, digest: str) -> tuple[CheckpointManifest | None, str | None]:
    try:
        return manifests.fetch(storage, path, digest, CHECKPOINT), None
    except CorruptFile as error:
        return None, error.what

"""The columns of the system tables. They are part of what people rely on: columns are only added.

A column is declared once: its name, its type, and where its value is in the view that a row is made of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from operator import attrgetter
from typing import Any

import pyarrow as pa

_TEXT, _LONG, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TEXTS = pa.list_(pa.string())
_MOMENT = pa.timestamp("us", "UTC")

Row = Mapping[str, Any]
Place = str | Callable[[Any], Any]
"""Where a value is: the path of an attribute, or a function of the view."""


class SystemTable:
    """Columns by name: a type, and a place if that is not the attribute of the same name."""

    def __init__(self, columns: Mapping[str, pa.DataType | tuple[pa.DataType, Place]]) -> None:
        told = {name: each if isinstance(each, tuple) else (each, name) for name, each in columns.items()}
        self.schema = pa.schema({name: kind for name, (kind, _) in told.items()})
        self._columns = [
            (name, place if callable(place) else attrgetter(place), _FITTED.get(kind, _same))
            for name, (kind, place) in told.items()
        ]

    def row(self, view: object = None, **known: object) -> Row:
        """A row for a view, with values that are known from elsewhere."""
        return {
            name: fitted(known[name] if name in known else found(view))
            for name, found, fitted in self._columns
        }


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, str) else json.dumps(dict(value))


def moment(value: Any) -> datetime | None:
    """The time that a stamp or seconds since 1970 tell; None for what tells none."""
    if not isinstance(value, str):
        return None if value is None else datetime.fromtimestamp(value, UTC)
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


_FITTED: Mapping[pa.DataType, Callable[[Any], Any]] = {_TEXT: _text, _TEXTS: list, _MOMENT: moment}
"""What makes a value of a view one of a column."""


def _or_none(path: str) -> Place:
    """An empty text tells nothing."""
    read = attrgetter(path)
    return lambda view: read(view) or None


def _count(path: str) -> Place:
    read = attrgetter(path)
    return lambda view: len(read(view))


def _counted(path: str) -> Place:
    """A figure of a run's partitions, of which one that was not begun has none."""
    read = attrgetter(path)
    return lambda view: None if view.summary is None else read(view.summary)


TABLES: Mapping[str, SystemTable] = {
    # of `QueryInfo`
    "queries": SystemTable(
        {
            "id": _TEXT,
            "user": _TEXT,
            "protocol": _TEXT,
            "address": _TEXT,
            "application": _TEXT,
            "sql": _TEXT,
            "state": _TEXT,
            "submitted": _MOMENT,
            "started": _MOMENT,
            "ended": _MOMENT,
            "rows": _LONG,
            "bytes": _LONG,
            "error": _TEXT,
            "sqlstate": _TEXT,
        }
    ),
    # of `MemberView` or `WorkerView`
    "members": SystemTable(
        {
            "cluster": _TEXT,
            "member": (_TEXT, "id"),
            "role": _TEXT,
            "state": _TEXT,
            "leads": _FLAG,
            "capacity": _LONG,
            "vnodes": _LONG,
            "version": _TEXT,
            "catalog": _LONG,
            "addresses": _TEXT,
            "joined": _MOMENT,
            "heard": _MOMENT,
        }
    ),
    # of `Lease` or `PartitionView`
    "leases": SystemTable(
        {
            "kind": _TEXT,
            "name": _TEXT,
            "owner": _TEXT,
            "token": _LONG,
            "sequence": _LONG,
            "ttl": _REAL,
            "session": _TEXT,
            "alive": _FLAG,
            "since": _MOMENT,
        }
    ),
    # of `Snapshot`
    "assignments": SystemTable(
        {
            "cluster": _TEXT,
            "version": _LONG,
            "token": _LONG,
            "vnode": _LONG,
            "member": _TEXT,
        }
    ),
    # of `OpenBarrier`
    "barriers": SystemTable(
        {
            "cluster": _TEXT,
            "scope": _TEXT,
            "epoch": _LONG,
            "kind": _TEXT,
            "assignment": _LONG,
            "token": _LONG,
            "required": _TEXTS,
            "acked": _TEXTS,
            "missing": _TEXTS,
            "gone": _TEXTS,
        }
    ),
    # of `Decided`
    "epochs": SystemTable(
        {
            "cluster": _TEXT,
            "scope": _TEXT,
            "epoch": _LONG,
            "outcome": _TEXT,
            "kind": _TEXT,
            "watermark": _LONG,
            "token": _LONG,
            "assignment": _LONG,
            "acked": _TEXTS,
            "parts": _LONG,
            "files": _LONG,
            "seconds": _REAL,
            "reason": (_TEXT, _or_none("reason")),
            "decided": (_MOMENT, "at"),
        }
    ),
    # of `JournalView`
    "frontiers": SystemTable(
        {
            "stream": _TEXT,
            "epoch": _LONG,
            "source": _TEXT,
            "journal": _TEXT,
            "read": (_LONG, "position.offset"),
            "head": _LONG,
            "behind": _LONG,
            "producers": (_LONG, _count("position.producers")),
            "open_transactions": (_LONG, "open"),
        }
    ),
    # of `RunView`
    "runs": SystemTable(
        {
            "run": (_TEXT, "run.name"),
            "pipeline": (_TEXT, "run.pipeline"),
            "state": _TEXT,
            "rows": _LONG,
            "rows_completed": _LONG,
            "partition_rows": (_LONG, "run.partition_rows"),
            "partitions": (_LONG, _counted("total.partitions")),
            "pending": (_LONG, _counted("pending.partitions")),
            "claimed": (_LONG, _counted("claimed.partitions")),
            "completed": (_LONG, _counted("completed.partitions")),
            "poisoned": (_LONG, _counted("poisoned.partitions")),
            "failures": (_LONG, _counted("failures")),
            "outputs": (_TEXTS, "run.outputs"),
            "output": _TEXT,
            "created": (_MOMENT, "run.created"),
            "phases": (_LONG, _count("run.every_phase")),
            "phases_begun": (_LONG, _count("phases")),
            "left_out": _TEXTS,
        }
    ),
    # of `PartitionView`
    "partitions": SystemTable(
        {
            "run": _TEXT,
            "phase": _LONG,
            "begin_row": (_LONG, "range.begin"),
            "end_row": (_LONG, "range.end"),
            "state": _TEXT,
            "owner": (_TEXT, _or_none("owner")),
            "token": _LONG,
            "session": (_TEXT, _or_none("session")),
            "alive": _FLAG,
            "attempts": _LONG,
            "checkpoint_stage": (
                _LONG,
                lambda view: max((ref.stage for ref in view.checkpoints), default=None),
            ),
            "error": (_TEXT, lambda view: view.errors[-1].error if view.errors else None),
        }
    ),
    # of `CheckpointRef`
    "checkpoints": SystemTable(
        {
            "run": _TEXT,
            "phase": _LONG,
            "begin_row": _LONG,
            "end_row": _LONG,
            "stage": _LONG,
            "token": _LONG,
            "tables": _TEXTS,
            "rows": _LONG,
            "bytes": _LONG,
            "problem": _TEXT,
        }
    ),
    # of `StreamView`
    "streams": SystemTable(
        {
            "stream": (_TEXT, "name"),
            "state": _TEXT,
            "wanted": _TEXT,
            "epoch": _LONG,
            "oldest_epoch": (_LONG, "oldest"),
            "rows": _LONG,
            "bytes": _LONG,
            "late": _LONG,
            "speed": _REAL,
            "leader": _TEXT,
            "instances": (_LONG, _count("instances")),
            "parts": _LONG,
            "finished": _LONG,
            "reason": (_TEXT, _or_none("reason")),
            "created": _MOMENT,
        }
    ),
}
SHAPES: Mapping[str, pa.Schema] = {name: table.schema for name, table in TABLES.items()}

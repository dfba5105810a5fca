"""The columns of the system tables. They are part of what people rely on: columns are only added."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa

_TEXT, _LONG, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TEXTS = pa.list_(pa.string())
_MOMENT = pa.timestamp("us", "UTC")

SHAPES: Mapping[str, pa.Schema] = {
    "queries": pa.schema(
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
    "members": pa.schema(
        {
            "cluster": _TEXT,
            "member": _TEXT,
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
    "leases": pa.schema(
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
    "assignments": pa.schema(
        {"cluster": _TEXT, "version": _LONG, "token": _LONG, "vnode": _LONG, "member": _TEXT}
    ),
    "barriers": pa.schema(
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
    "epochs": pa.schema(
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
            "reason": _TEXT,
            "decided": _MOMENT,
        }
    ),
    "frontiers": pa.schema(
        {
            "stream": _TEXT,
            "epoch": _LONG,
            "source": _TEXT,
            "journal": _TEXT,
            "read": _LONG,
            "head": _LONG,
            "behind": _LONG,
            "producers": _LONG,
            "open_transactions": _LONG,
        }
    ),
    "runs": pa.schema(
        {
            "run": _TEXT,
            "pipeline": _TEXT,
            "state": _TEXT,
            "rows": _LONG,
            "rows_completed": _LONG,
            "partition_rows": _LONG,
            "partitions": _LONG,
            "pending": _LONG,
            "claimed": _LONG,
            "completed": _LONG,
            "poisoned": _LONG,
            "failures": _LONG,
            "outputs": _TEXTS,
            "output": _TEXT,
            "created": _MOMENT,
        }
    ),
    "partitions": pa.schema(
        {
            "run": _TEXT,
            "begin_row": _LONG,
            "end_row": _LONG,
            "state": _TEXT,
            "owner": _TEXT,
            "token": _LONG,
            "session": _TEXT,
            "alive": _FLAG,
            "attempts": _LONG,
            "checkpoint_stage": _LONG,
            "error": _TEXT,
        }
    ),
    "checkpoints": pa.schema(
        {
            "run": _TEXT,
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
    "streams": pa.schema(
        {
            "stream": _TEXT,
            "state": _TEXT,
            "wanted": _TEXT,
            "epoch": _LONG,
            "oldest_epoch": _LONG,
            "rows": _LONG,
            "bytes": _LONG,
            "late": _LONG,
            "speed": _REAL,
            "leader": _TEXT,
            "instances": _LONG,
            "parts": _LONG,
            "finished": _LONG,
            "reason": _TEXT,
            "created": _MOMENT,
        }
    ),
}


def moment(text: str) -> datetime | None:
    """The time that a stamp tells; None for one that tells none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

"""The document that says how a run's input is cut."""

from __future__ import annotations

import json

from penstock.claims.geometry import Geometry
from penstock.errors import CorruptFile, RunError, RunMismatch, UsageError
from penstock.store.base import Store

_FORMAT = 1


def create_board(store: Store, run: str, geometry: Geometry, max_failures: int) -> None:
    """Write the document unless it is there; `RunMismatch` if it is there with another geometry."""
    if max_failures < 1:
        raise UsageError(f"{max_failures} is no number of failures to allow", hint="allow at least 1")
    if store.cas(_board_key(run), 0, _encode_board(geometry, max_failures)) is not None:
        return
    existing, _ = read_board(store, run)
    if existing != geometry:
        raise RunMismatch(
            f"run {run!r} exists with {existing.total_rows} rows in partitions of {existing.partition_rows}, "
            f"not {geometry.total_rows} in partitions of {geometry.partition_rows}",
            left="the existing run was not changed",
            hint="resume it as it is, or start under another run name",
        )


def read_board(store: Store, run: str) -> tuple[Geometry, int]:
    """Geometry and allowed failures of a run. Raises `RunError` when there is no such run."""
    document = store.get(_board_key(run))
    if document is None:
        raise RunError(f"there is no run {run!r} in {store.url}", hint="see `penstock runs ls`")
    return _decode_board(run, document.value)


def _board_key(run: str) -> str:
    if not run or "/" in run or not run.isprintable():
        raise UsageError(f"{run!r} cannot name a run", hint="use letters, digits, dots and dashes")
    return f"runs/{run}/board"


def _encode_board(geometry: Geometry, max_failures: int) -> bytes:
    value = {
        "format": _FORMAT,
        "total_rows": geometry.total_rows,
        "partition_rows": geometry.partition_rows,
        "max_failures": max_failures,
    }
    return json.dumps(value).encode()


def _decode_board(run: str, data: bytes) -> tuple[Geometry, int]:
    try:
        value = json.loads(data)
        if value["format"] != _FORMAT:
            raise ValueError(f"it has format {value['format']}, this version of Penstock knows {_FORMAT}")
        return Geometry(value["total_rows"], value["partition_rows"]), value["max_failures"]
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptFile(f"the board of run {run!r} cannot be read: {error}") from error

"""What Delta's log says about the values in a file, so that readers can leave the file out."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.types.arrow import kind_of

_LONGEST = 32
"""Bounds of longer texts are left out."""
_MILLISECOND = timedelta(milliseconds=1)


class Statistics:
    """Counts and bounds of the columns that are whole numbers, texts, dates or times.

    Of other types they would have to be bent (a float may be NaN), and readers manage without.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = 0
        self._nulls = {f.name: 0 for f in schema if not pa.types.is_nested(f.type)}
        self._bounds: dict[str, tuple[Any, Any] | None] = {f.name: None for f in schema if _bounded(f.type)}

    def add(self, table: pa.Table) -> None:
        self._rows += table.num_rows
        for name in self._nulls:
            self._nulls[name] += table.column(name).null_count
        for name, known in self._bounds.items():
            found = pc.min_max(table.column(name))
            low, high = found["min"].as_py(), found["max"].as_py()
            if low is not None:
                self._bounds[name] = (
                    (low, high) if known is None else (min(known[0], low), max(known[1], high))
                )

    def encode(self) -> str:
        bounds = {name: both for name, both in self._bounds.items() if both is not None and _is_short(both)}
        return json.dumps(
            {
                "numRecords": self._rows,
                "minValues": {name: _lower(both[0]) for name, both in bounds.items()},
                "maxValues": {name: _upper(both[1]) for name, both in bounds.items()},
                "nullCount": self._nulls,
            }
        )


def _bounded(kind: pa.DataType) -> bool:
    return kind_of(kind) in ("integer", "text", "date", "instant", "local time")


def _is_short(both: tuple[Any, Any]) -> bool:
    return not any(isinstance(value, str) and len(value) > _LONGEST for value in both)


def _lower(value: Any) -> Any:
    """Times in the log have milliseconds: a lower bound is rounded down, an upper one up."""
    if isinstance(value, datetime):
        whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
        return whole.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value


def _upper(value: Any) -> Any:
    if isinstance(value, datetime) and value.microsecond % 1000 and value < _last(value):
        return _lower(value + _MILLISECOND)
    return _lower(value)


def _last(value: datetime) -> datetime:
    return datetime.max.replace(tzinfo=value.tzinfo) - _MILLISECOND

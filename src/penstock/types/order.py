"""The order of rows: by which columns they are sorted, and in which direction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyarrow import types as t

from penstock.types.arrow import is_bytes, is_text

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, order=True)
class SortColumn:
    """A column that rows are sorted by.

    The order is Spark's: NULL is before all values, NaN after all other numbers, and -0.0 is 0.0; a
    ``descending`` column has all of that the other way round.
    """

    name: str
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.name} desc" if self.descending else self.name


Order: TypeAlias = tuple[SortColumn, ...]
"""Rows that are equal in the first column are sorted by the second, and so on."""


def order_text(order: Iterable[SortColumn]) -> str:
    """An order in words: ``symbol, notional desc``."""
    return ", ".join(map(str, order))


def can_be_sorted(kind: pa.DataType) -> bool:
    """Whether rows can be sorted by a column of this type."""
    return any(is_kind(kind) for is_kind in _SORTED)


_SORTED = (
    t.is_boolean,
    t.is_integer,
    t.is_float32,
    t.is_float64,
    t.is_decimal128,
    t.is_date32,
    t.is_timestamp,
    is_text,
    is_bytes,
)

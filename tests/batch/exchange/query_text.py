"""PySpark as text: what it gives, and what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

KEYS = ("int", "text", "float", "decimal(10,2)", "decimal(12,4)", "date", "bool", "timestamp", "binary")
"""Types that a key can have."""


@dataclass(frozen=True, slots=True)
class Query:
    """PySpark as text, and the columns that it gives, by their types. ``rows`` guesses at how many."""

    code: str
    columns: Mapping[str, str]
    rows: float
    unique: str = ""
    """A column without two equal values."""
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The fields of each table that are read."""

    def then(self, step: str, columns: Mapping[str, str] | None = None, **changed: object) -> Query:
        made = replace(self, code=f"{self.code}{step}", columns=columns or self.columns)
        made = replace(made, **changed)  # type: ignore[arg-type]
        return made if made.unique in made.columns else replace(made, unique="")

    def of(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in kinds]


def alike(left: Query, right: Query) -> list[tuple[str, str]]:
    """Columns of one type that a key can have."""
    both = ((a, b) for a in left.columns for b in right.columns if left.columns[a] == right.columns[b])
    return [(a, b) for a, b in both if left.columns[a] in KEYS]


def both_read(left: Query, right: Query) -> dict[str, frozenset[str]]:
    nothing = frozenset[str]()
    return {t: left.reads.get(t, nothing) | right.reads.get(t, nothing) for t in {*left.reads, *right.reads}}

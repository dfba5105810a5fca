"""Names that PostgreSQL would take for something else unless they stand in quotes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from penstock.dialect.lexing import WORD, tokens

VALUES = frozenset({"user"})
"""Words that are a value to PostgreSQL, where other readers see the name of a column."""


@dataclass(frozen=True, slots=True)
class Quoted:
    """A text in which some words got quotes. ``places`` are where they began before."""

    text: str
    places: tuple[int, ...] = ()

    def before(self, position: int) -> int:
        """Where a place in this text was in the one that it was made of."""
        for number, place in enumerate(self.places):
            if position < place + 2 * number + 1:
                return position - 2 * number
            if position < place + 2 * number + 6:
                return place
        return position - 2 * len(self.places)


def as_columns(sql: str, columns: Collection[str]) -> Quoted:
    """``sql`` with `VALUES` in quotes, where there is a column of such a name."""
    names = VALUES.intersection(columns)
    if not any(name in sql.lower() for name in names):
        return Quoted(sql)
    found = [token for token in tokens(sql) if token.kind == WORD and token.value in names]
    text, end = "", 0
    for token in found:
        text += f'{sql[end : token.start]}"{token.value}"'
        end = token.end
    return Quoted(text + sql[end:], tuple(token.start for token in found))

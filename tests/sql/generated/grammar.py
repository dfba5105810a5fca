"""Statements made at random from a grammar; the same seed makes the same ones."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.sql.generated.data import T

_PLACE = re.compile(r"<(\w+)>")
_DEPTH = 3
_COLUMNS = frozenset({*T, "j::json", "j::jsonb"})

VALUES: dict[str, list[Any]] = {
    "int2": [5, -3],
    "int4": [7, -12, 100000],
    "int8": [2**40, -9],
    "num": [Decimal("1.50"), Decimal("-0.001"), Decimal("12345678901234567890.12")],
    "f8": [0.25, -1e-5, float("nan")],
    "text": ["pe", "", "é'\\x", "A"],
    "bool": [True, False],
    "date": [dt.date(2020, 2, 29), dt.date(1970, 1, 1)],
    "ts": [dt.datetime(2020, 1, 31, 10, 20, 30, 500000), dt.datetime(1969, 12, 31, 23, 59, 59)],
    "tz": [dt.datetime(2020, 1, 31, 10, 20, 30, tzinfo=dt.UTC)],
    "iv": [dt.timedelta(days=1, hours=2), dt.timedelta(seconds=-1.5)],
    "uuid": [UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")],
    "bytea": [b"\x00\xfe", b""],
    "ints": [[1, None, 3], []],
    "texts": [["a", 'b "c', None], [""]],
}
"""What parameters are, by their types."""
PLACES: dict[str, tuple[str, list[Any]]] = {
    "limit": ("int8", [0, 2, 100]),
    "pint": ("int4", [1, 2, 3]),
    "ptext": ("text", ["a%", "apple", "", "%_\\%%", "é'"]),
    "punit": ("text", ["month", "hour", "week", "quarter"]),
    **{f"p{kind}": (kind, values) for kind, values in VALUES.items()
       if kind in ("ints", "texts", "ts", "date", "tz", "num", "f8", "iv", "bool", "uuid", "bytea")},
}  # fmt: skip
"""Parameters that stand where only some values make sense."""


@dataclass(frozen=True, slots=True)
class Parameter:
    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Statement:
    """A query, or an expression of the columns of ``t``. Parameters stand in it as ``$1$``, ``$2$``."""

    text: str
    parameters: tuple[Parameter, ...] = ()
    expression: bool = True
    rows: str = "id < 7"
    """Which rows an expression is asked for."""

    def sql(self) -> str:
        return query([self]) if self.expression else placed([self])[0]


def placed(statements: list[Statement]) -> list[str]:
    """The texts with parameters numbered through all of them."""
    count = 0
    out = []
    for each in statements:
        out.append(_moved(each.text, count))
        count += len(each.parameters)
    return out


def _moved(text: str, by: int) -> str:
    return re.sub(r"\$(\d+)\$", lambda found: f"${int(found[1]) + by}", text)


def query(expressions: list[Statement]) -> str:
    """One query for all of them, which must want the same rows."""
    return f"SELECT id, {', '.join(placed(expressions))} FROM t WHERE {expressions[0].rows} ORDER BY id"


@cache
def rules() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    leaves: dict[str, list[str]] = defaultdict(list)
    forms: dict[str, list[str]] = defaultdict(list)
    for name in ("grammar.txt", "clauses.txt"):
        for line in Path(__file__).with_name(name).read_text(encoding="utf-8").split("\n"):
            if found := re.match(r"(\w+)([.:]) (.*)", line):
                (leaves if found[2] == "." else forms)[found[1]].append(found[3])
    return dict(leaves), dict(forms)


class _Maker:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._leaves, self._forms = rules()
        self._names = 0
        self.parameters: list[Parameter] = []

    def make(self, kind: str, depth: int, *, top: bool = False) -> str:
        if kind == "id":
            # The same in the whole of one form.
            return "{id}"
        leaves, forms = self._leaves.get(kind, []), self._forms.get(kind, [])
        deep = forms and (not leaves or (depth > 0 and (top or self._chance.random() < 0.7)))
        columns = [leaf for leaf in leaves if leaf in _COLUMNS]
        if columns and not deep and self._chance.random() < 0.5:
            return self._chance.choice(columns)
        form = self._chance.choice(forms if deep else leaves)
        if form == "$":
            return self._parameter(kind)
        made = _PLACE.sub(lambda found: self.make(found[1], depth - 1), form)
        if "{id}" in made and "<id>" in form:
            self._names += 1
            made = made.replace("{id}", str(self._names))
        return made

    def _parameter(self, kind: str) -> str:
        kind, values = PLACES.get(kind) or (kind, VALUES[kind])
        self.parameters.append(Parameter(kind, self._chance.choice(values)))
        return f"${len(self.parameters)}$"


TYPES = (
    "int2", "int4", "int8", "num", "f4", "f8", "text", "bool", "date", "ts", "tz", "time", "iv", "uuid",
    "bytea", "ints", "texts", "json", "jsonb",
)  # fmt: skip
_WEIGHTS = (1, 4, 2, 4, 1, 4, 8, 6, 2, 3, 2, 1, 3, 1, 1, 2, 2, 1, 2)


def statements(seed: int) -> Iterator[Statement]:
    """Without end: four expressions, then a query, and so on."""
    chance = random.Random(seed)
    while True:
        for _ in range(4):
            maker = _Maker(chance)
            kind = chance.choices(TYPES, _WEIGHTS)[0]
            text = maker.make(kind, chance.choice((1, 2, 2, _DEPTH)), top=True)
            rows = "true" if chance.random() < 0.1 else "id < 7"
            yield Statement(text, tuple(maker.parameters), rows=rows)
        maker = _Maker(chance)
        text = maker.make("query", chance.choice((2, 2, _DEPTH)))
        yield Statement(text, tuple(maker.parameters), expression=False)

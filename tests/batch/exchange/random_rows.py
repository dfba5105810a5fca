"""Tables for random queries, and rows for them that have every trap of equality in their keys."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa

import penstock as ps


class A(ps.Table):
    id: int
    k: int | None
    s: str | None
    x: float | None
    d: Annotated[Decimal, ps.Precision(10, 2)] | None
    day: date | None
    n: int
    flag: bool | None
    tags: list[str]


class B(ps.Table):
    id: int
    k: int | None
    j: int | None
    s: str | None
    x: float | None
    d: Annotated[Decimal, ps.Precision(10, 2)] | None
    e: Annotated[Decimal, ps.Precision(12, 4)] | None
    n: int


class C(ps.Table):
    id: int
    k: int | None
    s: str | None
    day: date | None
    at: datetime | None
    raw: bytes | None
    n: int


TABLES: dict[str, type[ps.Table]] = {"a": A, "b": B, "c": C}
NAMES = {
    pa.int64(): "int",
    pa.string(): "text",
    pa.float64(): "float",
    pa.decimal128(10, 2): "decimal(10,2)",
    pa.decimal128(12, 4): "decimal(12,4)",
    pa.date32(): "date",
    pa.bool_(): "bool",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.binary(): "binary",
}
"""What queries call the types; any other is a list of texts."""

# Equal to one collation or another, and to no byte.
TEXTS = [
    "", " ", "a", "A", "a ", " a", "ä", "a\u0308", "Ä", "ß", "ss", "SS", "I", "i", "\u0131", "\u0130",
    "é", "e\u0301", "E", "\u0000", "a\u0000", "\u200b", "\uff41", "ﬁ", "fi", "🙂", "Ω", "\u2126", "x" * 40,
]  # fmt: skip
# Sums of them are exact in any order.
FLOATS = [0.0, -0.0, float("nan"), float("inf"), 1.0, -1.5, 0.25, 2.0, 3.0, 1024.5, -0.125]
_NAN = -float("nan")
_DAY = date(2024, 2, 28)
_AT = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
_POOLS: dict[str, Callable[[random.Random, int], Any]] = {
    "int": lambda r, n: n or r.choice([-1, 2**33]),
    "text": lambda r, n: TEXTS[n % len(TEXTS)],
    "float": lambda r, n: r.choice([_NAN, FLOATS[2]]) if n % 11 == 2 else FLOATS[n % 11],
    "decimal(10,2)": lambda r, n: Decimal(n - 2) + Decimal("0.25") * (n % 2),
    "decimal(12,4)": lambda r, n: Decimal(n - 2) + Decimal("0.25") * (n % 2),
    "date": lambda r, n: _DAY + timedelta(days=n),
    "bool": lambda r, n: n % 2 == 0,
    "timestamp": lambda r, n: _AT + timedelta(microseconds=n),
    "binary": lambda r, n: bytes([0, n]) * (n % 3),
}


def make_rows(table: type[ps.Table], count: int, rng: random.Random) -> pa.Table:
    """Rows of a table: of skewed keys, some of which are null, and at times one key has nearly all."""
    skew = rng.choice([0.0, 1.1, 2.0])
    huge = rng.random() < 0.2
    keys = rng.randint(2, 25)
    weights = [1 / (n + 1) ** skew for n in range(keys)]
    columns: dict[str, list[Any]] = {}
    for field in table.__fields__.values():
        kind = NAMES.get(field.type, "texts")
        if field.name == "id":
            columns["id"] = list(range(count))
        elif field.name == "n":
            columns["n"] = [rng.randint(-5, 20) for _ in range(count)]
        elif kind == "texts":
            columns[field.name] = [rng.choices(["p", "q", "r"], k=rng.randint(0, 3)) for _ in range(count)]
        else:
            columns[field.name] = _values(rng, _POOLS[kind], weights, count, huge)
    return pa.table(columns, schema=table.input_schema())


def _values(
    rng: random.Random,
    pool: Callable[[random.Random, int], Any],
    weights: Sequence[float],
    count: int,
    huge: bool,
) -> list[Any]:
    nulls = rng.choice([0.0, 0.1, 0.5])
    found = []
    for number in rng.choices(range(len(weights)), weights, k=count):
        key = 1 if huge and rng.random() < 0.9 else number
        found.append(None if rng.random() < nulls else pool(rng, key))
    return found

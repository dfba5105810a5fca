"""Logarithms and exponentials in doubles, of numerics that have more digits than a double."""

from __future__ import annotations

from penstock.sql.rules.core import Typed, between, once
from penstock.sql.rules.types import FLOAT8, ROUGH, Type
from penstock.sql.rules.values.operators import double

_FEW = "1e-10"
"""A result that is smaller would have fewer than six of the sixteen places that it is shown with."""


def is_numeric(kind: Type) -> bool:
    """Whether PostgreSQL computes this in numerics."""
    return kind.name == "numeric" or kind == ROUGH


def of(value: Typed, word: str) -> str:
    """``ln`` or ``log10`` of a number."""
    if value.type.name == "numeric":
        return once(value, lambda v: _of_numeric(v, value.type, word))
    return once(Typed(double(value), FLOAT8), lambda v: _checked(v, f"{word}({v})"))


def _of_numeric(v: str, kind: Type, word: str) -> str:
    """Near 1, what a numeric differs from it by is not rounded as the number itself would be."""
    narrow = f"DECIMAL({min(38, kind.scale + 2)},{min(36, kind.scale)})"
    rest = Typed(f"CAST(CAST({v} AS {narrow}) - 1 AS DOUBLE)", FLOAT8)
    near = between("0.5BD", v, "2BD")
    return _checked(v, f"IF({near}, {once(rest, lambda d: _near_one(d, word))}, {word}(CAST({v} AS DOUBLE)))")


def _near_one(d: str, word: str) -> str:
    fault = "this numeric is too near to 1 for its logarithm to be shown here: cast it to double precision"
    found = f"log1p({d})" if word == "ln" else f"(log1p({d}) / ln(10D))"
    return f"IF({d} <> 0 AND abs({d}) < {_FEW}D, CAST(raise_error('{fault}') AS DOUBLE), {found})"


def _checked(v: str, found: str) -> str:
    fault = "CAST(raise_error('cannot take logarithm of zero or a negative number') AS DOUBLE)"
    return f"IF({v} <= 0, {fault}, {found})"


def exponential(value: Typed) -> str:
    """Of a numeric in two parts: digits that a large double has no room for would be lost."""
    if value.type.name != "numeric":
        return f"exp({double(value)})"
    return once(
        value,
        lambda v: (
            f"(exp(CAST(IF({v} < 0, ceil({v}), floor({v})) AS DOUBLE)) * exp(CAST({v} % 1BD AS DOUBLE)))"
        ),
    )

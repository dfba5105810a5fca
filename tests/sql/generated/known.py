"""Where ours may differ: each is told in docs/reference/sql.md, "Where it differs from PostgreSQL"."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from tests.sql.generated.comparison import Answer, aligned
from tests.sql.generated.grammar import Statement
from tests.sql.generated.unneeded import may_be_left_out

_NUMERIC = 1700
_DIGITS = Decimal("1e-15")
_SMALL = Decimal("1e-5")
_PLACES = 16
_FLOATS = (700, 701)
_STEEP = re.compile(r"\btan\(.*\batan2?\(")
"""Near a pole, tan() makes a large difference of the last digit that it is given."""
_DOUBLE = re.compile(r"-?\d+\.\d{10,}(?:e[+-]?\d+)?")

ZEROS = "zeros at the end of a numeric"
QUOTIENT = "last digits of a numeric that was divided, or is computed in doubles"
LAST = "the last digit of a double, in a text"
OVERFLOW = "doubles that become too large"
ZERO = "the sign of a zero among doubles that are grouped, added up or joined"
UNNEEDED = "an error in a part whose value is not needed"
_GROUPS = re.compile(r"\b(DISTINCT|GROUP BY|UNION|INTERSECT|EXCEPT|JOIN|PARTITION|min|max|sum|avg)\b")


def known(
    statement: Statement, theirs: Answer, ours: Answer, failing: Callable[[], frozenset[bytes | None]]
) -> str:
    """Why the two may differ, or nothing; ``failing`` are rows that PostgreSQL refuses to compute."""
    if theirs.message.startswith(("value out of range: overflow", "value out of range: underflow")):
        return OVERFLOW
    if theirs.sqlstate and not ours.sqlstate:
        sql, sqlstate = statement.sql(), theirs.sqlstate
        if may_be_left_out(sql, sqlstate):
            return UNNEEDED
        if statement.expression and may_be_left_out(sql, sqlstate, with_nulls=True):
            refused = failing()
            return "" if any(row[-1] is not None for row in ours.rows if row[0] in refused) else UNNEEDED
    if theirs.sqlstate or theirs.types != ours.types or len(theirs.rows) != len(ours.rows):
        return ""
    reasons = {
        _number(a.decode(), b.decode())
        if oid == _NUMERIC
        else ZERO
        if {a, b} == {b"0", b"-0"} and _GROUPS.search(statement.text)
        else LAST
        if oid in _FLOATS and _STEEP.search(statement.text) and math.isclose(float(a), float(b), rel_tol=1e-5)
        else _text(a.decode(), b.decode())
        for a, b, oid in aligned(statement, theirs, ours)
        if a is not None and b is not None
    }
    missing = any((a is None) != (b is None) for a, b, _ in aligned(statement, theirs, ours))
    if missing or "" in reasons:
        return ""
    return max(reasons, key=(ZEROS, QUOTIENT, LAST, ZERO).index)


def _number(theirs: str, ours: str) -> str:
    try:
        a, b = Decimal(theirs), Decimal(ours)
    except InvalidOperation:
        return ""
    if not (a.is_finite() and b.is_finite()):
        return ""
    if a == b:
        return ZEROS
    if abs(a - b) <= abs(a) * _DIGITS:
        return QUOTIENT
    # What is computed in doubles is shown with sixteen places, a quotient with up to twenty. A small number
    # has fewer digits then, and what is left of a subtraction of doubles fewer still.
    places = -int(b.as_tuple().exponent)
    error = Decimal(10) ** (1 - places if places == _PLACES else -places)
    cut = places >= _PLACES and abs(a - b) <= error
    return QUOTIENT if cut and abs(a - b) <= abs(a) * _SMALL else ""


def _text(theirs: str, ours: str) -> str:
    left, right = _DOUBLE.findall(theirs), _DOUBLE.findall(ours)
    if len(left) != len(right) or _DOUBLE.sub("#", theirs) != _DOUBLE.sub("#", ours):
        return ""
    close = all(math.isclose(float(a), float(b), rel_tol=1e-14) for a, b in zip(left, right, strict=True))
    return LAST if close else ""

"""Where ours may differ: each is told in docs/reference/sql.md, "Where it differs from PostgreSQL"."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation

from tests.sql.generated.comparison import Answer, aligned
from tests.sql.generated.grammar import Statement
from tests.sql.generated.unneeded import may_be_left_out

_NUMERIC = 1700
_DIGITS = Decimal("1e-15")
_SMALL = Decimal("1e-5")
_PLACES = 16
_DOUBLE = re.compile(r"-?\d+\.\d{10,}(?:e[+-]?\d+)?")

ZEROS = "zeros at the end of a numeric"
QUOTIENT = "last digits of a numeric that was divided, or is computed in doubles"
LAST = "the last digit of a double, in a text"
OVERFLOW = "doubles that become too large"
ZERO = "the sign of a zero among doubles that are grouped, added up or joined"
UNNEEDED = "an error in a part whose value is not needed"
_GROUPS = re.compile(r"\b(DISTINCT|GROUP BY|UNION|INTERSECT|EXCEPT|JOIN|PARTITION|min|max|sum|avg)\b")


def known(statement: Statement, theirs: Answer, ours: Answer) -> str:
    """Why the two may differ, or nothing."""
    if theirs.message.startswith(("value out of range: overflow", "value out of range: underflow")):
        return OVERFLOW
    if theirs.sqlstate and not ours.sqlstate and may_be_left_out(statement.sql(), theirs.sqlstate):
        return UNNEEDED
    if theirs.sqlstate or theirs.types != ours.types or len(theirs.rows) != len(ours.rows):
        return ""
    reasons = {
        _number(a.decode(), b.decode())
        if oid == _NUMERIC
        else ZERO
        if {a, b} == {b"0", b"-0"} and _GROUPS.search(statement.text)
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
    # What is computed in doubles is shown with sixteen places; a small number has fewer digits then.
    cut = b.as_tuple().exponent == -_PLACES and abs(a - b) <= Decimal(10) ** -_PLACES
    return QUOTIENT if cut and abs(a - b) <= abs(a) * _SMALL else ""


def _text(theirs: str, ours: str) -> str:
    left, right = _DOUBLE.findall(theirs), _DOUBLE.findall(ours)
    if len(left) != len(right) or _DOUBLE.sub("#", theirs) != _DOUBLE.sub("#", ours):
        return ""
    close = all(math.isclose(float(a), float(b), rel_tol=1e-14) for a, b in zip(left, right, strict=True))
    return LAST if close else ""

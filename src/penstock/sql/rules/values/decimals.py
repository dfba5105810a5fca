"""Products and quotients of decimals: PostgreSQL's have as many digits as it takes, Spark's 38."""

from __future__ import annotations

from penstock.sql.rules.core import Typed
from penstock.sql.rules.types import Type, numeric


def product(left: str, a: Type, right: str, b: Type) -> Typed:
    """A product of decimals, exact where Spark's 38 digits allow it."""
    scale = a.scale + b.scale
    whole = a.precision - a.scale + b.precision - b.scale + 1
    exact = a.exact and b.exact
    kept = scale if whole + scale <= 38 else max(38 - whole, min(scale, 6))
    if kept == scale:
        return Typed(f"({left} * {right})", numeric(whole + kept, kept, exact=exact))
    narrow, kind = "DECIMAL(18,9)", numeric(38, 18, exact=False)
    fits = f"{_kept(left, a, narrow)} AND {_kept(right, b, narrow)}"
    small = f"try_cast({left} AS {narrow}) * try_cast({right} AS {narrow})"
    rough = f"CAST({left} AS DOUBLE) * CAST({right} AS DOUBLE)"
    return Typed(f"IF({fits}, CAST({small} AS {kind.spark}), CAST({rough} AS {kind.spark}))", kind)


def _kept(value: str, kind: Type, narrow: str) -> str:
    """Whether a number keeps its digits in ``narrow``.

    Both sides have the number's own type: those of two types Spark would round to what both fit into.
    """
    return f"{value} = try_cast(try_cast({value} AS {narrow}) AS {kind.spark})"


def divide(left: str, a: Type, right: str, b: Type) -> Typed:
    """A quotient of decimals. PostgreSQL gives sixteen digits or more; so does this."""
    whole = a.precision - a.scale + b.scale
    scale = 38 - whole
    sql = f"(CAST({left} AS {a.spark}) / CAST({right} AS DECIMAL(38,{b.scale})))"
    if scale > 20:
        kind = numeric(whole + 20, 20, exact=False)
        return Typed(f"CAST({sql} AS {kind.spark})", kind)
    if scale >= 16:
        return Typed(sql, numeric(38, scale, exact=False))
    return _wide(left, a, right, b)


def _wide(left: str, a: Type, right: str, b: Type) -> Typed:
    """Types so wide that Spark would keep only six digits: values are mostly smaller than their types."""
    kind = numeric(38, 18, exact=False)
    places = min(b.scale, 6)
    digits = 20 - places
    narrow = f"DECIMAL({min(38, digits + a.scale)},{min(a.scale, 38 - digits)})"

    def body(x: str, y: str) -> str:
        small = f"abs({x}) < 1{'0' * digits}BD"
        if b.scale > places:
            small += f" AND {_kept(y, b, f'DECIMAL(38,{places})')}"
        quotient = f"CAST({x} AS {narrow}) / CAST({y} AS DECIMAL(38,{places}))"
        rough = f"CAST({x} AS DOUBLE) / CAST({y} AS DOUBLE)"
        return f"IF({small}, CAST({quotient} AS {kind.spark}), CAST({rough} AS {kind.spark}))"

    if len(left) + len(right) < 400:
        return Typed(body(left, right), kind)
    pair = f"array(struct({left} AS a, {right} AS b))"
    return Typed(f"transform({pair}, d -> {body('d.a', 'd.b')})[0]", kind)

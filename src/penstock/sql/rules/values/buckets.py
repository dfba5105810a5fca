"""width_bucket: PostgreSQL has errors where Spark's own has NULL, and computes numerics exactly."""

from __future__ import annotations

from penstock.sql.rules.core import Call, Typed, function, once
from penstock.sql.rules.types import FLOAT8, INT4, decimal, numeric
from penstock.sql.rules.values.casts import cast, coerce
from penstock.sql.rules.values.operators import double

_DIGITS = 26
"""What the product with a count leaves of Spark's 38 digits."""


@function("width_bucket")
def _width_bucket(call: Call) -> Typed:
    call.expect(4)
    given = [cast(arg, FLOAT8) if arg.type.name == "unknown" else arg for arg in call.args[:3]]
    count = coerce(call.args[3], INT4)
    if not all(each.type.number for each in given) or not count.type.integer:
        raise call.refuse("three numbers and an integer are wanted")
    names = [each.type.name for each in given]
    # Of integers alone PostgreSQL takes the function of doubles, too.
    if "numeric" not in names or any(each.type.floating for each in given):
        values = [Typed(double(each), FLOAT8) for each in given]
        return Typed(_each(values, count, exact=False), INT4)
    return Typed(_each(_decimals(call, given), count, exact=True), INT4)


def _decimals(call: Call, given: list[Typed]) -> list[Typed]:
    """Numbers of one scale, which Spark subtracts, multiplies and divides without rounding."""
    kinds = [decimal(each.type) for each in given]
    scale = max(kind.scale for kind in kinds)
    whole = max(kind.precision - kind.scale for kind in kinds)
    if whole + scale > _DIGITS:
        raise call.refuse(f"more than {_DIGITS} digits are not supported: cast to numeric(20,6), say")
    kind = numeric(whole + scale, scale)
    return [Typed(f"CAST({each.sql} AS {kind.spark})", kind) for each in given]


def _each(values: list[Typed], count: Typed, *, exact: bool) -> str:
    a, low, high = values
    return once(
        a,
        lambda v: once(
            low, lambda lo: once(high, lambda hi: once(count, lambda n: _checked(v, lo, hi, n, exact=exact)))
        ),
    )


def _checked(v: str, low: str, high: str, count: str, *, exact: bool) -> str:
    bounds = [
        (
            "isnan({v}) OR isnan({low}) OR isnan({high})",
            "operand, lower bound, and upper bound cannot be NaN",
        ),
        ("abs({low}) = {most} OR abs({high}) = {most}", "lower and upper bounds must be finite"),
        ("abs({high} - {low}) = {most}", "lower and upper bounds are too far apart"),
    ]
    faults = [
        ("{count} <= 0", "count must be greater than zero"),
        *([] if exact else bounds),
        ("{low} = {high}", "lower bound cannot equal upper bound"),
    ]
    names = {"v": v, "low": low, "high": high, "count": count, "most": "DOUBLE('Infinity')"}
    missing = " OR ".join(f"{each} IS NULL" for each in (v, low, high, count))
    checks = [
        f"WHEN {test.format_map(names)} THEN CAST(raise_error('{what}') AS INT)" for test, what in faults
    ]
    # The same for falling bounds: both differences change their signs.
    part, whole = f"({v} - {low})", f"({high} - {low})"
    rough = f"CAST({count} * {part} / {whole} + 1D AS INT)"
    place = f"CAST({part} * {count} DIV {whole} AS INT) + 1" if exact else rough
    return (
        f"CASE WHEN {missing} THEN NULL {' '.join(checks)}"
        f" WHEN IF({low} < {high}, {v} < {low}, {v} > {low}) THEN 0"
        f" WHEN IF({low} < {high}, {v} >= {high}, {v} <= {high}) THEN {count} + 1"
        f" ELSE {place} END"
    )

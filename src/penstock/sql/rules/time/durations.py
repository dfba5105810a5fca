"""Functions that give intervals: make_interval, age, justify_…"""

from __future__ import annotations

from sqlglot import exp

from penstock.sql.parse.interval_input import DAY, Parts
from penstock.sql.rules.core import Call, Typed, function
from penstock.sql.rules.time import intervals
from penstock.sql.rules.types import DATE, DAYTIME, PARTS, TIMESTAMP, TIMESTAMPTZ, common
from penstock.sql.rules.values.casts import cast, coerce
from penstock.sql.rules.values.operators import double

_YEARS, _WEEKS = {"years": 12, "months": 1}, {"weeks": 7, "days": 1}
_MICROS_OF = (
    "(CAST(hour({0}) * 3600 + minute({0}) * 60 AS BIGINT) * 1000000"
    " + CAST(extract(SECOND FROM {0}) * 1000000 AS BIGINT))"
)
"""Of a timestamp: how late it is in its day."""


@function("make_interval")
def _make_interval(call: Call) -> Typed:
    names = ("years", "months", "weeks", "days", "hours", "mins", "secs")
    given: dict[str, Typed] = {}
    for i, arg in enumerate(call.node.expressions):
        if isinstance(arg, exp.Kwarg):
            given[str(arg.this.name).lower()] = call.context.expr(arg.args["expression"])
        else:
            given[names[i]] = call.context.expr(arg)
    if set(given) - set(names):
        raise call.refuse("an argument is not known")

    def total(units: dict[str, int]) -> str:
        parts = [
            f"CAST({given[name].sql} AS BIGINT) * {size}" for name, size in units.items() if name in given
        ]
        return f"({' + '.join(parts)})" if parts else "0L"

    seconds = given.get("secs")
    if all(isinstance(value.value, int) for value in given.values()):
        numbers = {name: int(str(value.value)) for name, value in given.items()}

        def sum_of(units: dict[str, int]) -> int:
            return sum(numbers.get(name, 0) * size for name, size in units.items())

        micros = sum_of({"hours": 3600, "mins": 60, "secs": 1}) * 1_000_000
        return intervals.constant(Parts(sum_of(_YEARS), sum_of(_WEEKS), micros))
    fraction = f" + CAST(rint({double(seconds)} * 1000000) AS BIGINT)" if seconds is not None else ""
    return intervals.of_parts(
        total(_YEARS), total(_WEEKS), f"({total({'hours': 3600, 'mins': 60})} * 1000000{fraction})"
    )


@function("age")
def _age(call: Call) -> Typed:
    """From field to field of the calendar: months, then days of the earlier one's month, then the rest."""
    call.expect(1, 2)
    values = [cast(arg, TIMESTAMP) if arg.type.name == "unknown" else arg for arg in call.args]
    if not all(value.type.moment for value in values):
        raise call.refuse("dates and timestamps are wanted")
    if len(values) == 1:
        values = [Typed("current_date()", DATE), *values]
    both = common([value.type for value in values])
    first, second = (coerce(value, both if both == TIMESTAMPTZ else TIMESTAMP).sql for value in values)
    pair = f"array(struct({first} AS a, {second} AS b))"
    # Moments are compared, and then taken as clocks show them.
    ends = ", ".join(
        f"CAST({each} AS TIMESTAMP_NTZ) AS {name}"
        for each, name in (("greatest(p.a, p.b)", "l"), ("least(p.a, p.b)", "s"))
    )
    ends = f"{ends}, IF(p.a < p.b, -1, 1) AS g"
    ordered = f"transform({pair}, p -> struct({ends}))"
    since = f"({_MICROS_OF.format('p.l')} - {_MICROS_OF.format('p.s')})"
    borrowed = f"IF({since} < 0, 1, 0)"
    length = "day(last_day(p.s))"
    fields = (
        f"struct((year(p.l) - year(p.s)) * 12 + month(p.l) - month(p.s) AS m,"
        f" day(p.l) - day(p.s) - {borrowed} AS d, {since} + {borrowed} * {DAY}L AS t,"
        f" {length} AS n, p.g AS g)"
    )
    short = "CAST(CASE WHEN f.d >= 0 THEN 0 WHEN f.d + f.n >= 0 THEN 1 ELSE 2 END AS INT)"
    made = intervals.of_parts(f"(f.m - {short}) * f.g", f"(f.d + {short} * f.n) * f.g", "f.t * f.g").sql
    sql = f"transform(transform({ordered}, p -> {fields}), f -> {made})[0]"
    return Typed(f"IF({first} IS NULL OR {second} IS NULL, NULL, {sql})", PARTS)


@function("justify_days", "justify_hours", "justify_interval")
def _justify(call: Call) -> Typed:
    call.expect(1)
    value = cast(call.args[0], DAYTIME) if call.args[0].type.name == "unknown" else call.args[0]
    if value.type.name != "interval":
        raise call.refuse("an interval is wanted")
    if not isinstance(value.value, Parts):
        raise call.refuse("only a constant is supported")
    return intervals.constant(_JUSTIFIED[call.name](value.value))


def _justify_hours(parts: Parts) -> Parts:
    days = abs(parts.micros) // DAY * (1 if parts.micros >= 0 else -1)
    moved = Parts(parts.months, parts.days + days, parts.micros - days * DAY)
    if moved.days > 0 > moved.micros:
        return moved + Parts(0, -1, DAY)
    return moved + Parts(0, 1, -DAY) if moved.days < 0 < moved.micros else moved


def _justify_days(parts: Parts) -> Parts:
    months = abs(parts.days) // 30 * (1 if parts.days >= 0 else -1)
    moved = Parts(parts.months + months, parts.days - months * 30, parts.micros)
    if moved.months > 0 > moved.days:
        return moved + Parts(-1, 30)
    return moved + Parts(1, -30) if moved.months < 0 < moved.days else moved


def _justify_interval(parts: Parts) -> Parts:
    moved = _justify_days(_justify_hours(parts))
    # Also across: a day less, so that all parts have one sign.
    if (moved.months, moved.days) > (0, 0) and moved.micros < 0:
        moved = moved + Parts(0, -1, DAY)
    elif (moved.months, moved.days) < (0, 0) and moved.micros > 0:
        moved = moved + Parts(0, 1, -DAY)
    return _justify_days(moved)


_JUSTIFIED = {
    "justify_days": _justify_days,
    "justify_hours": _justify_hours,
    "justify_interval": _justify_interval,
}

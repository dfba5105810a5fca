"""Intervals: PostgreSQL keeps months, days and microseconds apart.

An interval is held as one of Spark's two types where it fits: as months (``ym``), or as days and a time of
less than a day with the same sign (``dt``). Else it is a struct of its three parts (``parts``). Spark's own
arithmetic with ``dt`` would turn 24 hours into a day, which PostgreSQL does not: a sum of such intervals, or
a multiple, has ``parts``.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from penstock.sql.parse.interval_input import DAY, Parts, parsed
from penstock.sql.rules.core import Typed, once, refuse
from penstock.sql.rules.types import DAYTIME, MONTHS, PARTS

__all__ = ["Parts", "constant", "literal"]
_MOST_SECONDS = 10**12


def literal(text: str, fields: str = "", precision: int | None = None) -> Typed:
    """``INTERVAL 'text' fields``."""
    return constant(parsed(text, fields, precision))


def constant(parts: Parts) -> Typed:
    """An interval that is known."""
    if parts.months and not parts.days and not parts.micros:
        return Typed(f"INTERVAL '{parts.months}' MONTH", MONTHS, parts)
    same = parts.days * parts.micros >= 0
    if not parts.months and same and abs(parts.micros) < DAY and abs(parts.size) < 2**63:
        return Typed(f"INTERVAL '{_seconds(parts.size):f}' SECOND", DAYTIME, parts)
    return Typed(_struct(str(parts.months), str(parts.days), str(parts.micros)), PARTS, parts)


def _struct(month: str, day: str, micro: str) -> str:
    fields = (f"CAST({month} AS INT)", f"CAST({day} AS INT)", f"CAST({micro} AS BIGINT)")
    return f"named_struct('pg_months', {fields[0]}, 'pg_days', {fields[1]}, 'pg_micros', {fields[2]})"


def moving(value: Typed) -> str:
    """An interval as Spark adds it to a moment as PostgreSQL does: months, then days, then the rest."""
    parts = value.value
    if isinstance(parts, Parts):
        if abs(parts.micros) >= _MOST_SECONDS * 1_000_000:
            raise refuse("an interval of so many hours is not supported", hint="Say it in days.")
        return f"make_interval(0, {parts.months}, 0, {parts.days}, 0, 0, {_seconds(parts.micros):f}BD)"
    if value.type.unit == "ym":
        return value.sql

    def body(v: str) -> str:
        each = Typed(v, value.type)
        seconds = f"CAST(CAST({micros(each)} AS DECIMAL(20,0)) / 1000000 AS DECIMAL(18,6))"
        months_, days_ = f"CAST({months(each)} AS INT)", f"CAST({days(each)} AS INT)"
        return f"make_interval(0, {months_}, 0, {days_}, 0, 0, {seconds})"

    return once(value, body)


def _seconds(micros: int) -> Decimal:
    return Decimal(micros) / 1_000_000


def months(value: Typed) -> str:
    """How many months an interval has, as a number."""
    if isinstance(value.value, Parts):
        return f"CAST({value.value.months} AS BIGINT)"
    if value.type.unit == "ym":
        return f"CAST(CAST({value.sql} AS INTERVAL MONTH) AS BIGINT)"
    if value.type.unit == "dt":
        return f"IF({value.sql} IS NULL, NULL, 0L)"
    return f"CAST({value.sql}.pg_months AS BIGINT)"


def days(value: Typed) -> str:
    if isinstance(value.value, Parts):
        return f"CAST({value.value.days} AS BIGINT)"
    if value.type.unit == "ym":
        return f"IF({value.sql} IS NULL, NULL, 0L)"
    if value.type.unit == "parts":
        return f"CAST({value.sql}.pg_days AS BIGINT)"
    return f"CAST(extract(DAY FROM {value.sql}) AS BIGINT)"


def micros(value: Typed) -> str:
    """What an interval has besides months and days."""
    if isinstance(value.value, Parts):
        return f"CAST({value.value.micros} AS BIGINT)"
    if value.type.unit == "ym":
        return f"IF({value.sql} IS NULL, NULL, 0L)"
    if value.type.unit == "parts":
        return f"{value.sql}.pg_micros"
    hours = f"CAST(extract(HOUR FROM {value.sql}) AS BIGINT)"
    rest = f"{hours} * 3600 + extract(MINUTE FROM {value.sql}) * 60"
    return f"CAST(({rest} + extract(SECOND FROM {value.sql})) * 1000000 AS BIGINT)"


def of_parts(month: str, day: str, micro: str) -> Typed:
    """An interval of three numbers; NULL where one of them is."""
    missing = " OR ".join(f"x_p.{name} IS NULL" for name in ("pg_months", "pg_days", "pg_micros"))
    sql = f"transform(array({_struct(month, day, micro)}), x_p -> IF({missing}, NULL, x_p))[0]"
    return Typed(sql, PARTS)


def whole(value: Typed) -> Typed:
    """The interval with all its parts."""
    if value.type.unit == "parts":
        return value
    if isinstance(value.value, Parts):
        parts = value.value
        return Typed(_struct(str(parts.months), str(parts.days), str(parts.micros)), PARTS, parts)
    made = once(value, lambda v: of_parts(*_numbers(Typed(v, value.type))).sql)
    return Typed(made, PARTS)


def _numbers(value: Typed) -> tuple[str, str, str]:
    return months(value), days(value), micros(value)


def size(value: Typed) -> str:
    """A number by which PostgreSQL compares: a month has 30 days, a day 24 hours."""
    if isinstance(value.value, Parts):
        return f"CAST('{value.value.size}' AS DECIMAL(30,0))"

    def body(v: str) -> str:
        each = Typed(v, value.type)
        return f"(CAST({months(each)} * 30 + {days(each)} AS DECIMAL(19,0)) * {DAY} + {micros(each)})"

    return once(value, body)


def add(left: Typed, right: Typed, sign: str) -> Typed:
    """``left sign right``."""
    if isinstance(left.value, Parts) and isinstance(right.value, Parts):
        return constant(left.value + (right.value if sign == "+" else -right.value))
    if left.type.unit == right.type.unit == "ym":
        return Typed(f"({left.sql} {sign} {right.sql})", MONTHS)

    def body(a: str, b: str) -> str:
        pairs = zip(_numbers(_like(left, a)), _numbers(_like(right, b)), strict=True)
        return of_parts(*(f"{one} {sign} {other}" for one, other in pairs)).sql

    return Typed(once(left, lambda a: once(right, lambda b: body(a, b))), PARTS)


def negative(value: Typed) -> Typed:
    if isinstance(value.value, Parts):
        return constant(-value.value)
    if value.type == PARTS:
        return Typed(
            once(value, lambda v: of_parts(*(f"-{n}" for n in _numbers(_like(value, v)))).sql), PARTS
        )
    return Typed(f"(-{value.sql})", value.type)


def scaled(value: Typed, factor: Typed, sign: str) -> Typed:
    """``value * factor`` and ``value / factor``."""
    known = factor.value
    if isinstance(value.value, Parts) and isinstance(known, int | Decimal) and not isinstance(known, bool):
        if sign == "/" and not known:
            raise refuse("division by zero", sqlstate="22012")
        return constant(value.value.times(Fraction(known) if sign == "*" else 1 / Fraction(known)))
    return Typed(_both(value, factor, sign), PARTS)


def _both(value: Typed, factor: Typed, sign: str) -> str:
    if sign == "*" and factor.type.integer:

        def times(v: str, f: str) -> str:
            return of_parts(*(f"{number} * {f}" for number in _numbers(_like(value, v)))).sql

        return once(value, lambda v: once(factor, lambda f: times(v, f)))
    number = Typed(f"CAST({factor.sql} AS DOUBLE)", factor.type)
    return once(value, lambda v: once(number, lambda f: _product(_like(value, v), f, sign)))


def _like(value: Typed, sql: str) -> Typed:
    return Typed(sql, value.type, value.value)


def _product(value: Typed, factor: str, sign: str) -> str:
    """As PostgreSQL does it: what is left of months becomes days, what is left of days becomes time."""
    month, day, micro = (f"({part(value)} {sign} {factor})" for part in (months, days, micros))
    spare = f"(rint(({month} - CAST({month} AS INT)) * 30 * 1e6D) / 1e6D)"
    rest = f"({day} - CAST({day} AS INT) + {spare} - CAST({spare} AS INT))"
    seconds = f"(rint({rest} * 86400 * 1e6D) / 1e6D)"
    more = f"IF(abs({seconds}) >= 86400, CAST({seconds} / 86400 AS INT), 0)"
    return of_parts(
        f"CAST({month} AS INT)",
        f"CAST({day} AS INT) + CAST({spare} AS INT) + {more}",
        f"CAST(rint({micro} + ({seconds} - {more} * 86400) * 1e6D) AS BIGINT)",
    ).sql


def converted(value: Typed, unit: str) -> Typed:
    """An interval held as another one is."""
    return value if value.type.unit == unit else whole(value)


def text(value: Typed) -> str:
    """``interval::text`` in PostgreSQL's own style."""
    return once(value, lambda v: _text(_like(value, v)))


def _text(value: Typed) -> str:
    month, day, micro = months(value), days(value), micros(value)
    years = f"({month} DIV 12)"
    left = f"({month} % 12)"
    # A part after a negative one shows that it is not negative.
    parts = [
        _counted(years, "year", ""),
        _counted(left, "mon", f"IF({years} < 0 AND {left} > 0, '+', '')"),
        _counted(day, "day", f"IF({left} < 0 OR ({left} = 0 AND {years} < 0), IF({day} > 0, '+', ''), '')"),
    ]
    before = f"IF({day} <> 0, {day}, IF({left} <> 0, {left}, {years}))"
    clock = f"CASE WHEN {micro} <> 0 OR ({month} = 0 AND {day} = 0) THEN {_clock(micro, before)} END"
    return f"IF({value.sql} IS NULL, NULL, concat_ws(' ', {', '.join([*parts, clock])}))"


def _counted(number: str, unit: str, sign: str) -> str:
    mark = f"{sign}, " if sign else ""
    plural = f"IF({number} = 1, '', 's')"
    return f"CASE WHEN {number} <> 0 THEN concat({mark}{number}, ' {unit}', {plural}) END"


def _clock(micro: str, before: str) -> str:
    size_ = f"abs({micro})"
    sign = f"CASE WHEN {micro} < 0 THEN '-' WHEN {before} < 0 THEN '+' ELSE '' END"
    hours = f"CAST({size_} DIV 3600000000 AS STRING)"
    fraction = f"rtrim('0', concat('.', lpad(CAST({size_} % 1000000 AS STRING), 6, '0')))"
    pieces = [
        sign,
        f"lpad({hours}, greatest(2, length({hours})), '0')",
        f"lpad(CAST({size_} DIV 60000000 % 60 AS STRING), 2, '0')",
        f"lpad(CAST({size_} DIV 1000000 % 60 AS STRING), 2, '0')",
    ]
    whole_ = f"concat({pieces[0]}, {pieces[1]}, ':', {pieces[2]}, ':', {pieces[3]}"
    return f"{whole_}, IF({size_} % 1000000 = 0, '', {fraction}))"

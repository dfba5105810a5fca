"""What a value looks like as text: ``value::text``."""

from __future__ import annotations

from penstock.sql.rules.core import Typed, between, once, refuse
from penstock.sql.rules.types import Type


def plain(value: Typed) -> str:
    """A text, or an array of texts, without the blanks that fill a char(n): so they are cast and compared."""
    if value.type.name == "bpchar":
        return f"rtrim(' ', {value.sql})"
    return f"transform({value.sql}, x_b -> rtrim(' ', x_b))" if holds_bpchar(value.type) else value.sql


def holds_bpchar(kind: Type) -> bool:
    """Is it an array of char(n)?"""
    return kind.name == "array" and kind.element is not None and kind.element.name == "bpchar"


def output(value: Typed) -> str:
    """What functions of any type write of a value. Unlike ``::text`` this has the blanks of a char(n)."""
    return value.sql if value.type.name == "bpchar" else to_text(value)


def json_text(value: Typed) -> str:
    """Json as text."""
    if value.type.native:
        return f"to_json({value.sql}, map('ignoreNullFields', 'false'))"
    return value.sql


def to_text(value: Typed) -> str:
    """``value::text``."""
    kind = value.type
    if kind.textual or kind.name in ("uuid", "time"):
        return plain(value)
    if kind.name == "unknown":
        return value.sql if isinstance(value.value, str) else f"CAST({value.sql} AS STRING)"
    if kind.integer or kind.name == "bool" or (kind.name == "numeric" and kind.exact):
        return f"CAST({value.sql} AS STRING)"
    if kind.name in ("date", "timestamp"):
        return once(value, lambda v: dated(v, f"CAST({v} AS STRING)"))
    if kind.floating and kind.exact:
        return _float_text(value)
    if kind.name == "timestamptz":
        return once(
            value,
            lambda v: dated(
                v, f"concat(CAST({v} AS STRING), regexp_replace(date_format({v}, 'xxxxx'), ':00$', ''))"
            ),
        )
    if kind.name == "bytea":
        return f"concat('\\\\x', lower(hex({value.sql})))"
    if kind.name in ("json", "jsonb"):
        return json_text(value)
    if kind.number:
        raise refuse("how many digits PostgreSQL would write of this number is not known here",
               hint="Round it first: round(x, 2)::text.")  # fmt: skip
    if kind.name == "interval":
        from penstock.sql.rules.time import intervals

        return intervals.text(value)
    raise refuse(f"the text of a value of type {kind.name} is not supported")


def dated(v: str, shown: str) -> str:
    """Years of more or less than four digits are written in other ways by Spark."""
    fault = "CAST(raise_error('years before 1 or after 9999 are not supported as text') AS STRING)"
    return f"IF({between(1, f'year({v})', 9999)} OR {v} IS NULL, {shown}, {fault})"


def shown(value: Typed) -> str:
    """What PostgreSQL's functions of texts show of a value: like `output`, but for truth values."""
    if value.type.name == "bool":
        return f"CASE WHEN {value.sql} THEN 't' WHEN NOT {value.sql} THEN 'f' END"
    return output(value)


def _float_text(value: Typed) -> str:
    """Digits as PostgreSQL prints them: no exponent between 1e-4 and 1e15 (1e6 for a real), no ``.0``."""
    limit = "1e15" if value.type.name == "float8" else "1e6"

    def body(v: str) -> str:
        digits = f"CAST({v} AS STRING)"
        fixed = f"regexp_replace(CAST(CAST({digits} AS DECIMAL(38,22)) AS STRING), '[.]?0+$', '')"
        mantissa = f"regexp_replace(split({digits}, 'E')[0], '[.]0$', '')"
        power = f"CAST(split({digits}, 'E')[1] AS INT)"
        sign = f"IF({power} < 0, '-', '+')"
        science = f"concat({mantissa}, 'e', {sign}, lpad(CAST(abs({power}) AS STRING), greatest(2, length(CAST(abs({power}) AS STRING))), '0'))"  # noqa: E501
        return (
            f"CASE WHEN {v} IS NULL OR isnan({v}) OR abs({v}) = DOUBLE('Infinity') THEN {digits}"
            f" WHEN {v} = 0 THEN IF({digits} LIKE '-%', '-0', '0')"
            f" WHEN abs({v}) >= 1e-4D AND abs({v}) < {limit}D THEN {fixed}"
            f" ELSE IF({digits} LIKE '%E%', {science}, {_shift(v, digits)}) END"
        )

    return once(value, body)


def _shift(v: str, digits: str) -> str:
    """Java writes numbers below 1e7 without an exponent, PostgreSQL reals only below 1e6."""
    bare = f"replace(regexp_replace({digits}, '^-', ''), '.', '')"
    mantissa = f"regexp_replace(concat(left({bare}, 1), '.', substring({bare}, 2)), '[.]?0*$', '')"
    return f"concat(IF({v} < 0, '-', ''), {mantissa}, 'e+06')"

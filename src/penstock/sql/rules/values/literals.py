"""Constants: what PostgreSQL reads from a literal, said so that Spark reads the same."""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.rules.core import Context, Typed, refuse, rule, text
from penstock.sql.rules.json import text as jsontext
from penstock.sql.rules.time import intervals, zones
from penstock.sql.rules.types import BOOL, BYTEA, INT4, INT8, TEXT, UNKNOWN, Type, numeric

_TRUE = {"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"}
_FALSE = {"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"}
_HEX = "[0-9a-fA-F]{4}(-?[0-9a-fA-F]{4}){7}"
UUID_FORM = f"^({_HEX}|[{{]{_HEX}[}}])$"
"""Hyphens may stand after every four digits."""
FLOATING = r"(?i)^\s*[+-]?(([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?|inf(inity)?|nan)\s*$"
"""How a double is written."""
_ESCAPES = re.compile(rb"\\(?:([0-3][0-7]{2})|\\)")
_DIGITS = 38
_DAY = 24 * 3600 * 1_000_000
_SHOWN = 60
BLANKS = " \t\n\r\v\f"
"""What may stand around a value. Others of Unicode's are letters to PostgreSQL."""
_STAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?|(?!-))"
    r"\s*(Z|UTC|[+-]\d{1,2}(?::?\d{2})?)?$",
    re.IGNORECASE | re.ASCII,
)
"""What comes right behind a day cannot be an offset to the west: it could be more of the day."""
_DECIMAL = re.compile(
    r"[+-]?(?:(?:\d+(?:_\d+)*)(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:e[+-]?\d+(?:_\d+)*)?",
    re.IGNORECASE | re.ASCII,
)
_UNUSUAL = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE | re.ASCII)


@rule(exp.Literal)
def _literal(_context: Context, node: exp.Expr) -> Typed:
    value = str(node.this)
    if node.args.get("is_string"):
        return Typed(text(value), UNKNOWN, value)
    return number(value)


@rule(exp.RawString, exp.National)
def _raw(_context: Context, node: exp.Expr) -> Typed:
    return Typed(text(str(node.this)), UNKNOWN, str(node.this))


@rule(exp.ByteString)
def _escaped(_context: Context, node: exp.Expr) -> Typed:
    # The escapes of E'…' are resolved by the tokenizer.
    return Typed(text(str(node.this)), UNKNOWN, str(node.this))


@rule(exp.UnicodeString)
def _unicode(_context: Context, node: exp.Expr) -> Typed:
    escape = node.args.get("escape")
    mark = re.escape(str(escape.name if isinstance(escape, exp.Expr) else escape or "\\"))
    pattern = rf"{mark}(?:({mark})|\+([0-9a-fA-F]{{6}})|([0-9a-fA-F]{{4}}))"

    def read(found: re.Match[str]) -> str:
        return found[1] or chr(int(found[2] or found[3], 16))

    value = re.sub(pattern, read, str(node.this))
    return Typed(text(value), UNKNOWN, value)


@rule(exp.Concat)
def _adjacent(context: Context, node: exp.Expr) -> Typed:
    # Two literals on lines that follow each other are one.
    parts = [context.expr(part).value for part in node.expressions]
    if not all(isinstance(part, str) for part in parts):
        raise refuse("a concatenation without an operator is not supported", node)
    value = "".join(str(part) for part in parts)
    return Typed(text(value), UNKNOWN, value)


@rule(exp.Boolean)
def _boolean(_context: Context, node: exp.Expr) -> Typed:
    return Typed("true" if node.this else "false", BOOL)


@rule(exp.Null)
def _null(_context: Context, _node: exp.Expr) -> Typed:
    return Typed("NULL", UNKNOWN)


@rule(exp.Interval)
def _interval(_context: Context, node: exp.Expr) -> Typed:
    # The parser leaves the text as it is written; beside it stand the fields, and a precision.
    if not isinstance(node.this, exp.Literal):
        raise refuse("INTERVAL wants a literal", node)
    unit = node.args.get("unit")
    fields, _, precision = (str(unit.this) if unit is not None else "").partition("/")
    return intervals.literal(str(node.this.this), fields, int(precision) if precision else None)


@rule(exp.Parameter)
def _parameter(context: Context, node: exp.Expr) -> Typed:
    number_ = str(node.name)
    if not number_.isdigit():
        raise refuse("parameters are written $1, $2, …", node, sqlstate="42601")
    return context.parameter(int(number_), node)


def number(value: str) -> Typed:
    """A number without quotes."""
    if value.isdigit() and len(digits := value.lstrip("0") or "0") <= _DIGITS:
        if int(digits) < 2**31:
            return Typed(str(int(digits)), INT4, int(digits))
        if int(digits) < 2**63:
            return Typed(f"{int(digits)}L", INT8, int(digits))
    return decimal(value)


def shortened(value: str) -> str:
    """A number as a message shows it."""
    return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"


def decimal(value: str) -> Typed:
    bare = value.strip(BLANKS)
    if _UNUSUAL.fullmatch(bare):
        raise refuse(f"the numeric {value} has no counterpart in Spark")
    if not _DECIMAL.fullmatch(bare):
        raise SqlError(f'invalid input syntax for type numeric: "{shortened(value)}"', sqlstate="22P02")
    try:
        amount = Decimal(bare)
    except InvalidOperation:
        raise refuse(f"the number {shortened(value)} is too large for Spark", sqlstate="22003") from None
    exponent = int(amount.as_tuple().exponent)
    if max(-exponent, 0 if amount.is_zero() else amount.adjusted()) > _DIGITS:
        # Not written out first: a few letters may say a number of billions of digits.
        raise refuse(
            f"the number {shortened(value)} has more digits than Spark's {_DIGITS}", sqlstate="22003"
        )
    plain = f"{amount:f}" if not amount.is_zero() or exponent < 0 else "0"
    scale = len(plain.partition(".")[2])
    precision = max(len(plain.lstrip("-").replace(".", "").lstrip("0")), scale + 1)
    if precision > _DIGITS:
        raise refuse(
            f"the number {shortened(value)} has more digits than Spark's {_DIGITS}", sqlstate="22003"
        )
    sql = f"{plain}BD" if not plain.startswith("-") else f"(-{plain[1:]}BD)"
    return Typed(sql, numeric(precision, scale), amount)


def constant(value: str, kind: Type) -> Typed | None:  # noqa: C901 - one case for each type
    """The literal ``value`` as PostgreSQL reads one of type ``kind``; None where that is left to Spark."""
    stripped = value.strip(BLANKS)
    name = kind.name
    if name == "bool":
        if stripped.lower() in _TRUE | _FALSE:
            return Typed("true" if stripped.lower() in _TRUE else "false", BOOL)
        raise SqlError(f'invalid input syntax for type boolean: "{value}"', sqlstate="22P02")
    if kind.integer:
        return _integer(stripped, kind)
    if name == "numeric":
        return decimal(value)
    if kind.floating:
        return floating(value, kind)
    if kind.moment:
        return moment(stripped, kind)
    if name == "interval":
        return intervals.literal(value)
    if name == "bytea":
        return Typed(f"X'{_bytes(value).hex()}'", BYTEA)
    if name == "uuid":
        if not re.fullmatch(UUID_FORM, value):
            raise SqlError(f'invalid input syntax for type uuid: "{value}"', sqlstate="22P02")
        return Typed(text(str(uuid.UUID(value))), kind)
    if name in ("json", "jsonb"):
        try:
            written = jsontext.canonical_literal(value)
        except (ValueError, RecursionError):
            raise SqlError(f"invalid input syntax for type {name}", sqlstate="22P02") from None
        return Typed(text(written if name == "jsonb" else value), kind)
    if name == "time":
        from penstock.sql.rules.time import clock

        return clock.constant(value)
    if name in ("text", "unknown", "any"):
        return Typed(text(value), TEXT, value)
    return None


def _integer(value: str, kind: Type) -> Typed:
    found = re.fullmatch(r"([+-]?)0*([0-9]+)", value)
    if not found:
        raise SqlError(f'invalid input syntax for type integer: "{shortened(value)}"', sqlstate="22P02")
    # Python makes no number of thousands of digits.
    number_ = int(found[1] + found[2]) if len(found[2]) <= _DIGITS else None
    most = 1 << {"int2": 15, "int4": 31, "int8": 63}[kind.name]
    if number_ is None or not -most <= number_ < most:
        what = f'value "{shortened(value)}" is out of range for type {kind.name}'
        raise SqlError(what, sqlstate="22003")
    return Typed(f"CAST('{number_}' AS {kind.spark})", kind, number_)


def floating(value: str, kind: Type) -> Typed:
    """A double or a real; one that is too large for it is an error."""
    if not re.fullmatch(FLOATING, value, re.ASCII):
        raise SqlError(f'invalid input syntax for type {kind.name}: "{value}"', sqlstate="22P02")
    number_ = float(value)
    digits = re.search("[0-9]", value) is not None
    most, least = (3.4028235677973366e38, 7.006492321624086e-46) if kind.name == "float4" else (math.inf, 0.0)
    mantissa = re.search("[1-9]", re.split("[eE]", value)[0]) is not None
    if digits and (abs(number_) >= most or (mantissa and abs(number_) <= least)):
        raise SqlError(f'"{value}" is out of range for type {kind.name}', sqlstate="22003")
    return Typed(f"CAST({text(value.strip(BLANKS))} AS {kind.spark})", kind)


def _bytes(value: str) -> bytes:
    try:
        if value.startswith("\\x"):
            return bytes.fromhex(value[2:])
    except ValueError:
        raise SqlError("invalid hexadecimal data", sqlstate="22023") from None
    # A backslash stands before another one, or before the three digits of a byte.
    if _ESCAPES.sub(b"", data := value.encode()).count(b"\\"):
        raise SqlError("invalid input syntax for type bytea", sqlstate="22P02")
    return _ESCAPES.sub(lambda found: bytes([int(found[1], 8)]) if found[1] else b"\\", data)


def moment(value: str, kind: Type) -> Typed:
    """A date or timestamp literal."""
    word = value.lower()
    if word in ("now", "today", "yesterday", "tomorrow"):
        days = {"yesterday": " - INTERVAL '1' DAY", "tomorrow": " + INTERVAL '1' DAY"}.get(word, "")
        base = "current_timestamp()" if word == "now" else f"(current_date(){days})"
        if kind.name == "timestamptz" and word != "now":
            return Typed(zones.moment_of(f"CAST({base} AS TIMESTAMP_NTZ)"), kind)
        return Typed(f"CAST({base} AS {kind.spark})", kind)
    found = _STAMP.match("1970-01-01" if word == "epoch" else value)
    if not found:
        raise refuse(
            f'"{value}" is not a date that is understood here',
            hint="Write dates as 2024-12-31 23:59:59.",
            sqlstate="22007",
        )
    year, month, day, hour, minute, second = (int(found[i] or 0) for i in range(1, 7))
    fraction = round(float(found[7] or 0) * 1_000_000)
    zone = _zone(found[8], value)
    passed = ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction
    if minute > 59 or second > 60 or passed > _DAY:
        raise SqlError(f'date/time field value out of range: "{value}"', sqlstate="22008")
    try:
        day_ = dt.datetime(year, month, day)
        if kind.name == "date":
            # It is the day that is written, also at 24:00 of that day.
            return date(day_)
        stamp = day_ + dt.timedelta(microseconds=passed)
    except (ValueError, OverflowError):
        raise SqlError(f'date/time field value out of range: "{value}"', sqlstate="22008") from None
    if kind.name != "timestamptz":
        return timestamp(stamp)
    if not zone and zones.clocks_change():
        return Typed(zones.second_of(timestamp(stamp).sql), kind)
    return Typed(f"TIMESTAMP_LTZ'{stamp}{zone}'", kind)


def _zone(zone: str | None, value: str) -> str:
    """An offset as Spark reads it. One without meaning to its type must be one all the same."""
    if zone is None or zone[0] not in "+-":
        return (zone or "").upper()
    hours, minutes = re.fullmatch(r"[+-](\d{1,2}):?(\d{2})?", zone).groups()  # type: ignore[union-attr]
    if int(hours) > 15 or int(minutes or 0) > 59:
        raise SqlError(f'time zone displacement out of range: "{value}"', sqlstate="22009")
    return f"{zone[0]}{int(hours):02}:{minutes or '00'}"


def date(value: dt.date) -> Typed:
    return Typed(
        f"DATE'{value:%Y-%m-%d}'" if value.year > 999 else f"DATE'{value.year:04}-{value:%m-%d}'",
        Type("date"),
        dt.datetime(value.year, value.month, value.day),
    )


def timestamp(value: dt.datetime) -> Typed:
    return Typed(f"TIMESTAMP_NTZ'{value}'", Type("timestamp"), value)

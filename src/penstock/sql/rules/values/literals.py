"""Constants: what PostgreSQL reads from a literal, said so that Spark reads the same."""

from __future__ import annotations

import codecs
import datetime as dt
import json
import re
import uuid
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from penstock.dialect.spark import intervals
from penstock.dialect.spark.core import Context, Typed, refuse, rule, text
from penstock.dialect.spark.types import BOOL, BYTEA, INT4, INT8, TEXT, UNKNOWN, Type, numeric
from penstock.errors import SqlError

_TRUE = {"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"}
_FALSE = {"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"}
_STAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?)?"
    r"\s*(Z|UTC|[+-]\d{1,2}(?::?\d{2})?)?$",
    re.IGNORECASE,
)


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
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal) or isinstance(unit, exp.IntervalSpan):
        value = str(node.this.name) if isinstance(node.this, exp.Literal) else ""
        if not re.fullmatch(r"[+-]?\d+-\d+", value):
            raise refuse("this form of INTERVAL is not supported", node)
        return intervals.literal(value)
    return intervals.literal(str(node.this.this), str(unit.this) if unit else "")


@rule(exp.Parameter)
def _parameter(context: Context, node: exp.Expr) -> Typed:
    number_ = str(node.name)
    if not number_.isdigit():
        raise refuse("parameters are written $1, $2, …", node, sqlstate="42601")
    return context.parameter(int(number_), node)


def number(value: str) -> Typed:
    """A number without quotes."""
    if value.isdigit():
        if int(value) < 2**31:
            return Typed(str(int(value)), INT4, int(value))
        if int(value) < 2**63:
            return Typed(f"{int(value)}L", INT8, int(value))
    return decimal(value)


def decimal(value: str) -> Typed:
    try:
        amount = Decimal(value.strip())
    except InvalidOperation:
        raise SqlError(f'invalid input syntax for type numeric: "{value}"', sqlstate="22P02") from None
    if not amount.is_finite():
        raise refuse(f"the numeric {value} has no counterpart in Spark")
    plain = f"{amount:f}"
    scale = len(plain.partition(".")[2])
    precision = max(len(plain.lstrip("-").replace(".", "").lstrip("0")), scale + 1)
    if precision > 38:
        raise refuse(f"the number {value} has more digits than Spark's 38", sqlstate="22003")
    sql = f"{plain}BD" if not plain.startswith("-") else f"(-{plain[1:]}BD)"
    return Typed(sql, numeric(precision, scale), amount)


def constant(value: str, kind: Type) -> Typed | None:  # noqa: C901 - one case for each type
    """The literal ``value`` as PostgreSQL reads one of type ``kind``; None where that is left to Spark."""
    stripped = value.strip()
    name = kind.name
    if name == "bool":
        if stripped.lower() in _TRUE | _FALSE:
            return Typed("true" if stripped.lower() in _TRUE else "false", BOOL)
        raise SqlError(f'invalid input syntax for type boolean: "{value}"', sqlstate="22P02")
    if kind.integer:
        if not re.fullmatch(r"[+-]?\d+", stripped):
            raise SqlError(f'invalid input syntax for type integer: "{value}"', sqlstate="22P02")
        return Typed(f"CAST('{int(stripped)}' AS {kind.spark})", kind, int(stripped))
    if name == "numeric":
        return decimal(value)
    if kind.floating:
        return Typed(f"CAST({text(stripped)} AS {kind.spark})", kind)
    if kind.moment:
        return moment(stripped, kind)
    if name == "interval":
        return intervals.literal(value)
    if name == "bytea":
        return Typed(f"X'{_bytes(value).hex()}'", BYTEA)
    if name == "uuid":
        try:
            return Typed(text(str(uuid.UUID(stripped))), kind)
        except ValueError:
            raise SqlError(f'invalid input syntax for type uuid: "{value}"', sqlstate="22P02") from None
    if name in ("json", "jsonb"):
        try:
            json.loads(value)
        except ValueError:
            raise SqlError(f"invalid input syntax for type {name}", sqlstate="22P02") from None
        return Typed(text(value), kind, value)
    if name in ("text", "unknown", "any"):
        return Typed(text(value), TEXT, value)
    return None


def _bytes(value: str) -> bytes:
    if value.startswith("\\x"):
        return bytes.fromhex(value[2:])
    return codecs.escape_decode(value.encode())[0]


def moment(value: str, kind: Type) -> Typed:
    """A date or timestamp literal."""
    word = value.lower()
    if word in ("now", "today", "yesterday", "tomorrow"):
        days = {"yesterday": " - INTERVAL '1' DAY", "tomorrow": " + INTERVAL '1' DAY"}.get(word, "")
        base = "current_timestamp()" if word == "now" else f"(current_date(){days})"
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
    try:
        stamp = dt.datetime(year, month, day, min(hour, 23), minute, min(second, 59))
        stamp += dt.timedelta(
            hours=hour - min(hour, 23), seconds=second - min(second, 59), microseconds=fraction
        )
    except ValueError:
        raise SqlError(f'date/time field value out of range: "{value}"', sqlstate="22008") from None
    if kind.name == "date":
        return date(stamp)
    zone = found[8] if kind.name == "timestamptz" else None
    if zone is None and kind.name == "timestamptz":
        return Typed(f"TIMESTAMP_LTZ'{stamp}'", kind)
    if zone is None:
        return timestamp(stamp)
    if zone[0] in "+-":
        hours, minutes = re.fullmatch(r"[+-](\d{1,2}):?(\d{2})?", zone).groups()  # type: ignore[union-attr]
        zone = f"{zone[0]}{int(hours):02}:{minutes or '00'}"
    return Typed(f"TIMESTAMP_LTZ'{stamp}{zone}'", kind)


def date(value: dt.date) -> Typed:
    return Typed(
        f"DATE'{value:%Y-%m-%d}'" if value.year > 999 else f"DATE'{value.year:04}-{value:%m-%d}'",
        Type("date"),
        dt.datetime(value.year, value.month, value.day),
    )


def timestamp(value: dt.datetime) -> Typed:
    return Typed(f"TIMESTAMP_NTZ'{value}'", Type("timestamp"), value)

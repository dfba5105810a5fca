"""Types as PostgreSQL names them, with what Spark needs to know besides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.types import postgres


@dataclass(frozen=True, slots=True)
class Type:
    """A type of PostgreSQL.

    ``precision`` and ``scale`` are those of the decimal that Spark has. ``exact`` is False where PostgreSQL's
    value would have another scale: the number is the same, its text is not. ``native`` marks json that Spark
    holds as a struct, a map or a variant. ``unit`` says how it holds an interval (`intervals`). Of a bpchar,
    ``precision`` is the n of char(n), to which all values are filled up; 0 where they may differ.
    """

    name: str
    precision: int = 0
    scale: int = 0
    exact: bool = True
    element: Type | None = None
    native: bool = False
    unit: str = ""

    @property
    def spark(self) -> str:
        """As Spark's DDL spells it."""
        if self.name == "numeric":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.name == "array":
            return f"ARRAY<{self.element.spark if self.element else 'STRING'}>"
        if self.name == "interval":
            return _INTERVALS[self.unit]
        return _SPARK.get(self.name, "STRING")

    @property
    def integer(self) -> bool:
        return self.name in ("int2", "int4", "int8")

    @property
    def floating(self) -> bool:
        return self.name in ("float4", "float8")

    @property
    def number(self) -> bool:
        return self.integer or self.floating or self.name == "numeric"

    @property
    def textual(self) -> bool:
        return self.name in ("text", "bpchar")

    @property
    def moment(self) -> bool:
        return self.name in ("date", "timestamp", "timestamptz")


_SPARK = {name: postgres.spark_type(oid) for name, oid in postgres.OIDS.items()}
_INTERVALS = {
    "ym": "INTERVAL YEAR TO MONTH",
    "dt": "INTERVAL DAY TO SECOND",
    "parts": "STRUCT<pg_months: INT, pg_days: INT, pg_micros: BIGINT>",
}

BOOL, INT2, INT4, INT8 = Type("bool"), Type("int2"), Type("int4"), Type("int8")
BPCHAR = Type("bpchar")
FLOAT4, FLOAT8, TEXT, BYTEA = Type("float4"), Type("float8"), Type("text"), Type("bytea")
DATE, TIMESTAMP, TIMESTAMPTZ = Type("date"), Type("timestamp"), Type("timestamptz")
TIME = Type("time")
"""A time of day, held as the text that PostgreSQL writes: such texts sort as the times do."""
JSON, JSONB, UUID, RECORD = Type("json"), Type("jsonb"), Type("uuid"), Type("record")
UNKNOWN = Type("unknown")
"""A literal or NULL that takes the type of what stands beside it."""
ANY = Type("any")
"""Nothing is known."""
DAYTIME, MONTHS = Type("interval", unit="dt"), Type("interval", unit="ym")
PARTS = Type("interval", unit="parts")
NUMERIC = Type("numeric", 38, 18, exact=False)
ROUGH = Type("float8", exact=False)
"""A numeric to PostgreSQL that is computed in doubles here: roots, logarithms, deviations."""

_RANK = {name: i for i, name in enumerate(("int2", "int4", "int8", "numeric", "float4", "float8"))}
_MOMENTS = {name: i for i, name in enumerate(("date", "timestamp", "timestamptz"))}
_DIGITS = {"int2": 5, "int4": 10, "int8": 20}


def numeric(precision: int, scale: int, *, exact: bool = True) -> Type:
    return Type("numeric", max(1, min(38, precision)), max(0, min(scale, 38)), exact=exact)


def array(element: Type) -> Type:
    return Type("array", element=element)


def decimal(kind: Type) -> Type:
    """The decimal that holds every value of a number's type."""
    return numeric(_DIGITS[kind.name], 0) if kind.integer else kind


def of_spark(ddl: str) -> Type:
    """The type of a column that Spark calls ``ddl``."""
    text = ddl.strip().lower()
    head = re.split(r"[(<\s]", text, maxsplit=1)[0]
    if head in ("decimal", "dec", "numeric"):
        found = re.search(r"\((\d+)\s*(?:,\s*(\d+))?\)", text)
        return numeric(int(found[1]), int(found[2] or 0)) if found else numeric(10, 0)
    if head == "char":
        found = re.search(r"\((\d+)\)", text)
        return replace(BPCHAR, precision=int(found[1]) if found else 0)
    if head == "array":
        return array(of_spark(text[text.index("<") + 1 : text.rindex(">")]) if "<" in text else ANY)
    if head == "interval":
        return MONTHS if "year" in text or "month" in text else DAYTIME
    if text.replace("`", "").startswith("struct<pg_months"):
        return PARTS
    if head in ("struct", "map", "variant"):
        return Type("json", native=True)
    return _OF_SPARK.get(head, ANY)


_OF_SPARK = {
    "boolean": BOOL,
    "tinyint": INT2,
    "byte": INT2,
    "smallint": INT2,
    "short": INT2,
    "int": INT4,
    "integer": INT4,
    "bigint": INT8,
    "long": INT8,
    "float": FLOAT4,
    "real": FLOAT4,
    "double": FLOAT8,
    "string": TEXT,
    "varchar": TEXT,
    "binary": BYTEA,
    "date": DATE,
    "timestamp": TIMESTAMPTZ,
    "timestamp_ltz": TIMESTAMPTZ,
    "timestamp_ntz": TIMESTAMP,
    "void": UNKNOWN,
}

NAMED = {
    "BOOLEAN": BOOL,
    "SMALLINT": INT2,
    "INT": INT4,
    "BIGINT": INT8,
    "FLOAT": FLOAT4,
    "DOUBLE": FLOAT8,
    "TEXT": TEXT,
    "VARCHAR": TEXT,
    "NAME": TEXT,
    "CHAR": BPCHAR,
    "BPCHAR": BPCHAR,
    "VARBINARY": BYTEA,
    "BINARY": BYTEA,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMPTZ,
    "INTERVAL": DAYTIME,
    "TIME": TIME,
    "JSON": JSON,
    "JSONB": JSONB,
    "UUID": UUID,
}
"""The types that a cast can name, as the parser calls them."""


def common(types: Sequence[Type]) -> Type:
    """What PostgreSQL makes of several values that become one: in CASE, COALESCE, UNION, an array."""
    known = [kind for kind in types if kind.name != "unknown"]
    if not known:
        return TEXT
    if any(kind.name == "any" for kind in known):
        return ANY
    first = known[0]
    if all(kind.number for kind in known):
        return _number(known)
    if all(kind.moment for kind in known):
        return max(known, key=lambda kind: _MOMENTS[kind.name])
    if all(kind.name == "array" for kind in known):
        return array(common([kind.element or ANY for kind in known]))
    if all(kind.textual for kind in known):
        # Each can become the other, so the first decides.
        return BPCHAR if first.name == "bpchar" and len(set(known)) > 1 else first
    if all(kind.name == "interval" for kind in known):
        return first if len({kind.unit for kind in known}) == 1 else PARTS
    names = {(kind.name, kind.native) for kind in known}
    return first if len(names) == 1 else ANY


def _number(types: Sequence[Type]) -> Type:
    top = max(types, key=lambda kind: _RANK[kind.name])
    if top.name == "float4" and any(kind.name != "float4" for kind in types):
        return FLOAT8
    if top.name == "float8":
        return ROUGH if all(kind == ROUGH for kind in types if kind.floating) else FLOAT8
    if top.name != "numeric":
        return top
    decimals = [decimal(kind) for kind in types]
    scale = max(kind.scale for kind in decimals)
    whole = max(kind.precision - kind.scale for kind in decimals)
    same = len({kind.scale for kind in decimals}) == 1 and all(kind.exact for kind in decimals)
    # Where both do not fit, Spark fails on a number too large; it must not round one silently.
    return replace(numeric(whole + scale, scale), exact=same)

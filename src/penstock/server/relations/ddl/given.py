"""Columns as a CREATE TABLE gives them: types of PostgreSQL or of Spark, as Spark's DDL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.relations.columns import parsed as columns_of
from penstock.server.relations.naming import backquoted
from penstock.types import postgres

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NAME = re.compile(r"""(?:"((?:[^"]|"")+)"|`((?:[^`]|``)+)`|([^\W\d]\w*))\s+(.+)""", re.DOTALL)
_LENGTH = re.compile(
    r"(?:character varying|varchar|character|char|bpchar)\s*(?:\(\s*\d+\s*\))?", re.IGNORECASE
)
_SPARK = frozenset({"interval", "numeric", "oid", "time", "time without time zone", "timestamp"})
"""Names that Spark reads, or refuses, in its own way."""
_TYPES = {name: postgres.spark_type(oid) for name, oid in postgres.OIDS.items() if name not in _SPARK}


def parsed(columns: str) -> StructType:
    """The columns. Raises `SqlError` 42601 for what is none."""
    try:
        found = columns_of(", ".join(_column(each) for each in _split(columns)))
    except SqlError:
        raise
    except Exception as error:
        raise SqlError(
            f"the columns ({columns}) cannot be read",
            hint="give names and types, such as (id bigint, price decimal(18,4), note text)",
            sqlstate="42601",
        ) from error
    names = [name.lower() for name in found.names]
    for name in names:
        if names.count(name) > 1:
            raise SqlError(f'column "{name}" specified more than once', sqlstate="42701")
    return found


def _column(text: str) -> str:
    found = _NAME.fullmatch(text.strip())
    if not found:
        raise SqlError(
            f'syntax error in column "{text.strip()}"', hint="give a name and a type", sqlstate="42601"
        )
    quoted, ticked, bare, kind = found.groups()
    # One space each: patterns that begin with several would look at each of them again and again.
    kind = " ".join(kind.split())
    name = quoted.replace('""', '"') if quoted else ticked.replace("``", "`") if ticked else bare.lower()
    not_null = re.search(r"\s+not\s+null$", kind, re.IGNORECASE)
    kind = re.sub(r"\s+(not\s+)?null$", "", kind, flags=re.IGNORECASE)
    return f"{backquoted(name)} {_type(kind)}{' NOT NULL' if not_null else ''}"


def _type(kind: str) -> str:
    word = " ".join(kind.split())
    if word.endswith("[]"):
        return f"ARRAY<{_type(word[:-2])}>"
    if _LENGTH.fullmatch(word):
        return "STRING"
    word = re.sub(r"^timestamp\s*\(\d\)", "timestamp", word, flags=re.IGNORECASE)
    return _TYPES.get(word.lower(), word)


def _split(columns: str) -> list[str]:
    """Cut at commas that stand in no brackets and no quotes."""
    parts, depth, quote = [""], 0, ""
    for char in columns:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"`'":
            quote = char
        elif char in "(<":
            depth += 1
        elif char in ")>":
            depth -= 1
        if char == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return parts

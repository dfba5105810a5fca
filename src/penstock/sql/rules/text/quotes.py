"""Texts in quotes: quote_ident, quote_literal, quote_nullable and format."""

from __future__ import annotations

import re

from penstock.sql.parse.known_names import NOT_PLAIN
from penstock.sql.rules.core import Call, Typed, function, once, text
from penstock.sql.rules.functions import texts
from penstock.sql.rules.types import TEXT
from penstock.sql.rules.values.texts import shown, to_text

_LONGEST_PLACE = 20
_DIRECTIVE = re.compile(r"%(?:(%)|(\d+\$)?(-?\d*|-?\*)([sIL]))")


def identifier(sql: str) -> str:
    words = ", ".join(text(word) for word in sorted(NOT_PLAIN))

    def body(v: str) -> str:
        plain = f"{v} RLIKE '^[a-z_][a-z0-9_]*$' AND NOT {v} IN ({words})"
        return f"IF({plain}, {v}, concat('\"', replace({v}, '\"', '\"\"'), '\"'))"

    return once(Typed(sql, TEXT), body)


def literal(sql: str) -> str:
    def body(v: str) -> str:
        doubled = f"replace({v}, {text(chr(39))}, {text(chr(39) * 2)})"
        escaped = f"replace({doubled}, {text(chr(92))}, {text(chr(92) * 2)})"
        begin = f"IF(contains({v}, {text(chr(92))}), 'E', '')"
        return f"concat({begin}, {text(chr(39))}, {escaped}, {text(chr(39))})"

    return once(Typed(sql, TEXT), body)


@function("quote_ident")
def _quote_ident(call: Call) -> Typed:
    call.expect(1)
    return Typed(identifier(texts(call)[0]), TEXT)


@function("quote_literal")
def _quote_literal(call: Call) -> Typed:
    call.expect(1)
    return Typed(literal(to_text(call.args[0])), TEXT)


@function("quote_nullable")
def _quote_nullable(call: Call) -> Typed:
    call.expect(1)
    return Typed(f"coalesce({literal(to_text(call.args[0]))}, 'NULL')", TEXT)


@function("format")
def _format(call: Call) -> Typed:
    """Literal patterns of ``%s``, ``%I``, ``%L`` and ``%%``, also with the number of an argument."""
    pattern = call.args[0].value
    if not isinstance(pattern, str):
        raise call.refuse("the pattern must be a literal")
    parts: list[str] = []
    at, following = 0, 1
    for found in _DIRECTIVE.finditer(pattern):
        if "%" in pattern[at : found.start()]:
            raise call.refuse("this pattern is not supported")
        parts.append(text(pattern[at : found.start()]))
        at = found.end()
        if found[1]:
            parts.append(text("%"))
            continue
        if found[3]:
            raise call.refuse("a width is not supported")
        if len(found[2] or "") > _LONGEST_PLACE:
            raise call.refuse("too few arguments for format()")
        place = int(found[2][:-1]) if found[2] else following
        if not 1 <= place < len(call.args):
            raise call.refuse("too few arguments for format()")
        parts.append(_shown(call, call.args[place], found[4]))
        following = place + 1
    if "%" in pattern[at:]:
        raise call.refuse("this pattern is not supported")
    parts.append(text(pattern[at:]))
    return Typed(f"concat({', '.join(parts)})", TEXT)


def _shown(call: Call, value: Typed, form: str) -> str:
    if form == "s":
        return f"coalesce({shown(value)}, '')"
    if form == "L":
        return f"coalesce({literal(shown(value))}, 'NULL')"
    missing = "CAST(raise_error('null values cannot be formatted as an SQL identifier') AS STRING)"
    if not (value.type.textual or value.type.name == "unknown"):
        raise call.refuse("%I wants a text")
    return f"coalesce({identifier(shown(value))}, {missing})"

"""Json as text, token by token: Spark's own functions change how numbers are spelled, and the order of keys.

`children` cuts a document into its members and leaves each as it is written, which is what json means.
`canonical` writes a document as PostgreSQL writes jsonb: keys by length and then by bytes, the last of those
that come twice, one blank behind commas and colons, numbers without an exponent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.sql.rules.core import text

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = rf'(?s){_STRING}|[^\s{{}}\[\],:"]+|[{{}}\[\],:"]'
_PIECE = rf"{_TOKEN}|\s+"
_FRAME = "STRUCT<o: BOOLEAN, k: ARRAY<STRING>, v: ARRAY<STRING>, n: STRING>"
_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_MOST_ZEROS = 1000
_FAULT = "CAST(raise_error('invalid input syntax for type json') AS STRING)"


@dataclass(frozen=True, slots=True)
class Raw:
    """A document before it was written as jsonb: enough to look into it."""

    sql: str


def tokens(sql: str, *, blanks: bool) -> str:
    return f"regexp_extract_all({sql}, {text(_PIECE if blanks else _TOKEN)}, 0)"


def decoded(token: str) -> str:
    """The text that a token in quotes means."""
    escaped = f"from_json(concat('[', {token}, ']'), 'ARRAY<STRING>')[0]"
    plain = f"substring({token}, 2, char_length({token}) - 2)"
    return f"IF(contains({token}, '\\\\'), {escaped}, {plain})"


def encoded(sql: str) -> str:
    """A text as json writes it, in quotes; NULL for NULL."""
    inner = "IF(x_j = '[null]', NULL, substring(x_j, 2, char_length(x_j) - 2))"
    return f"transform(array(to_json(array({sql}))), x_j -> {inner})[0]"


def trimmed(sql: str) -> str:
    return f"trim(BOTH ' \\n\\t\\r' FROM {sql})"


def kind(sql: str) -> str:
    """Of a document: what ``json_typeof`` says."""
    first = f"left(ltrim(' \\n\\t\\r', {sql}), 1)"
    return (
        f"(CASE {first} WHEN '{{' THEN 'object' WHEN '[' THEN 'array' WHEN '\"' THEN 'string'"
        f" WHEN 't' THEN 'boolean' WHEN 'f' THEN 'boolean' WHEN 'n' THEN 'null'"
        f" ELSE IF({sql} IS NULL, NULL, 'number') END)"
    )


def children(sql: str) -> str:
    """The members of an object or array as ``ARRAY<STRUCT<k, v>>``, each ``v`` as it is written."""
    zero = (
        "named_struct('d', 0, 'k', CAST(NULL AS STRING), 'c', '',"
        " 'o', CAST(array() AS ARRAY<STRUCT<k: STRING, v: STRING>>))"
    )
    member = f"named_struct('k', x_s.k, 'v', {trimmed('x_s.c')})"
    # An empty container has nothing between its brackets.
    done = f"IF({trimmed('x_s.c')} = '', x_s.o, array_append(x_s.o, {member}))"

    def state(d: str = "x_s.d", k: str = "x_s.k", c: str = "x_s.c", o: str = "x_s.o") -> str:
        return f"named_struct('d', {d}, 'k', {k}, 'c', {c}, 'o', {o})"

    more = "concat(x_s.c, x_t)"
    none = "CAST(NULL AS STRING)"
    opened = state(d="x_s.d + 1", c=f"IF(x_s.d = 0, '', {more})")
    closed = f"IF(x_s.d = 1, {state('0', none, chr(39) * 2, done)}, {state(d='x_s.d - 1', c=more)})"
    step = (
        f"CASE WHEN x_t IN ('{{', '[') THEN {opened}"
        f" WHEN x_t IN ('}}', ']') THEN {closed}"
        f" WHEN x_t = ',' AND x_s.d = 1 THEN {state('1', none, chr(39) * 2, done)}"
        f" WHEN x_t = ':' AND x_s.d = 1 THEN {state(k=decoded(trimmed('x_s.c')), c=chr(39) * 2)}"
        f" ELSE {state(c=more)} END"
    )
    return f"aggregate({tokens(sql, blanks=True)}, {zero}, (x_s, x_t) -> {step}, x_s -> x_s.o)"


def at_key(sql: str, key: str) -> str:
    """``json -> 'key'``; ``key`` is SQL. Of keys that come twice, the last one."""
    found = f"reverse(filter({children('x_j')}, x_m -> x_m.k = {key}))"
    return f"transform(array({sql}), x_j -> IF({kind('x_j')} = 'object', get({found}, 0).v, NULL))[0]"


def at_place(sql: str, place: str) -> str:
    """``json -> place``, from the end if it is negative."""
    counted = f"IF({place} < 0, size(x_a) + {place}, {place})"
    found = f"transform(array({children('x_j')}), x_a -> get(x_a, {counted}))[0]"
    return f"transform(array({sql}), x_j -> IF({kind('x_j')} = 'array', {found}.v, NULL))[0]"


def shown(sql: str, *, binary: bool) -> str:
    """``->>`` of what ``->`` gives: a string without its quotes, and nothing for null."""
    rest = canonical("x_j") if binary else "x_j"
    inner = f"CASE {kind('x_j')} WHEN 'string' THEN {decoded('x_j')} WHEN 'null' THEN NULL ELSE {rest} END"
    return f"transform(array({sql}), x_j -> {inner})[0]"


def canonical(sql: str) -> str:
    """A document as PostgreSQL writes jsonb. What is no json is an error."""
    zero = f"named_struct('s', CAST(array() AS ARRAY<{_FRAME}>), 't', CAST(NULL AS STRING))"
    top = "element_at(x_s.s, -1)"
    rest = "slice(x_s.s, 1, greatest(0, size(x_s.s) - 1))"
    nothing = "CAST(array() AS ARRAY<STRING>)"
    frame = f"named_struct('o', x_t = '{{', 'k', {nothing}, 'v', {nothing}, 'n', CAST(NULL AS STRING))"
    # Spark's own check takes keys in other quotes, and without.
    key = f"IF(left(x_t, 1) = '\"', {decoded('x_t')}, {_FAULT})"
    named = f"named_struct('o', true, 'k', {top}.k, 'v', {top}.v, 'n', {key})"
    closes = "x_t IN ('}', ']')"
    stack, value = f"IF({closes}, {rest}, x_s.s)", f"IF({closes}, {_rendered(top)}, {_scalar('x_t')})"
    is_key = f"size(x_s.s) > 0 AND {top}.o AND {top}.n IS NULL"
    step = (
        f"CASE WHEN x_t IN ('{{', '[') THEN named_struct('s', array_append(x_s.s, {frame}), 't', x_s.t)"
        f" WHEN x_t IN (',', ':') THEN x_s"
        f" WHEN {is_key} AND x_t <> '}}' THEN named_struct('s', array_append({rest}, {named}), 't', x_s.t)"
        f" ELSE {_delivered(stack, value)} END"
    )
    made = f"aggregate({tokens('x_c', blanks=False)}, {zero}, (x_s, x_t) -> {step}, x_s -> x_s.t)"
    return f"transform(array({sql}), x_c -> IF(x_c IS NULL, NULL, {_valid('x_c', made)}))[0]"


def checked(sql: str) -> str:
    """A text as it is, if it is json."""
    return f"transform(array({sql}), x_c -> IF(x_c IS NULL, NULL, {_valid('x_c', 'x_c')}))[0]"


def _valid(sql: str, then: str) -> str:
    return f"IF(get_json_object({sql}, '$') IS NULL AND {trimmed(sql)} <> 'null', {_FAULT}, {then})"


def _delivered(stack: str, value: str) -> str:
    """A value that is complete goes to the container around it, or is the document."""
    last = "element_at(x_d.s, -1)"
    grown = (
        f"named_struct('o', {last}.o, 'k', IF({last}.o, array_append({last}.k, {last}.n), {last}.k),"
        f" 'v', array_append({last}.v, x_d.v), 'n', CAST(NULL AS STRING))"
    )
    below = "slice(x_d.s, 1, size(x_d.s) - 1)"
    inner = (
        f"IF(size(x_d.s) = 0, named_struct('s', x_d.s, 't', x_d.v),"
        f" named_struct('s', array_append({below}, {grown}), 't', x_s.t))"
    )
    return f"transform(array(named_struct('s', {stack}, 'v', {value})), x_d -> {inner})[0]"


def _rendered(frame: str) -> str:
    entry = "named_struct('l', octet_length(x_k), 'k', x_k, 'i', -x_i, 'v', get(x_f.v, x_i))"
    entries = f"array_sort(transform(x_f.k, (x_k, x_i) -> {entry}))"
    first = "(x_e, x_i) -> x_i = 0 OR get(x_a, x_i - 1).k <> x_e.k"
    kept = f"transform(array({entries}), x_a -> filter(x_a, {first}))[0]"
    members = f"transform({kept}, x_e -> concat({encoded('x_e.k')}, ': ', x_e.v))"
    whole = f"concat('{{', array_join({members}, ', '), '}}')"
    inner = f"IF(x_f.o, {whole}, concat('[', array_join(x_f.v, ', '), ']'))"
    return f"transform(array({frame}), x_f -> {inner})[0]"


def _scalar(token: str) -> str:
    escaped = f"IF(contains({token}, '\\\\'), {encoded(decoded(token))}, {token})"
    return (
        f"CASE WHEN left({token}, 1) = '\"' THEN {escaped}"
        f" WHEN {token} IN ('true', 'false', 'null') THEN {token}"
        f" WHEN NOT {token} RLIKE {text(_NUMBER)} THEN {_FAULT}"
        f" WHEN {token} RLIKE '[eE]' THEN {_plain_number(token)}"
        f" WHEN startswith({token}, '-') AND NOT {token} RLIKE '[1-9]' THEN substring({token}, 2)"
        f" ELSE {token} END"
    )


def _plain_number(token: str) -> str:
    """A number with an exponent, written without one."""
    parts = r"^(-?)([0-9]+)(?:[.]([0-9]+))?[eE]([+-]?[0-9]+)$"

    def part(number: int) -> str:
        return f"regexp_extract({token}, {text(parts)}, {number})"

    digits = f"concat({part(2)}, {part(3)})"
    struct = (
        f"named_struct('s', {part(1)}, 'd', {digits},"
        f" 'p', length({part(2)}) + CAST({part(4)} AS INT), 'e', CAST({part(4)} AS INT))"
    )
    fault = "CAST(raise_error('value overflows numeric format') AS STRING)"
    plain = (
        "CASE WHEN x_n.p <= 0 THEN concat('0.', repeat('0', -x_n.p), x_n.d)"
        " WHEN x_n.p >= length(x_n.d) THEN concat(x_n.d, repeat('0', x_n.p - length(x_n.d)))"
        " ELSE concat(left(x_n.d, x_n.p), '.', substring(x_n.d, x_n.p + 1)) END"
    )
    sign = "IF(x_n.d RLIKE '[1-9]', x_n.s, '')"
    short = f"regexp_replace({plain}, '^0+(?=[0-9])', '')"
    inner = f"IF(abs(x_n.e) > {_MOST_ZEROS}, {fault}, concat({sign}, {short}))"
    return f"transform(array({struct}), x_n -> {inner})[0]"


def canonical_literal(value: str) -> str:
    """What `canonical` gives for a document that is known. Raises `ValueError`."""
    return _written(
        json.loads(
            value, object_pairs_hook=_Pairs, parse_float=_Number, parse_int=_Number, parse_constant=_no
        )
    )


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, as they come."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def _no(word: str) -> object:
    raise ValueError(word)


def _written(value: Any) -> str:
    if isinstance(value, _Pairs):
        kept = sorted(dict(value).items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
        return "{" + ", ".join(f"{_quoted(key)}: {_written(each)}" for key, each in kept) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, _Number):
        try:
            number = Decimal(value)
        except InvalidOperation:
            raise ValueError("value overflows numeric format") from None
        if abs(number.adjusted()) > _MOST_ZEROS:
            raise ValueError("value overflows numeric format")
        return f"{number:f}".lstrip("-") if not number else f"{number:f}"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(value: str) -> str:
    if "\0" in value:
        raise ValueError("\\u0000 cannot be converted to text")
    return json.dumps(value, ensure_ascii=False)

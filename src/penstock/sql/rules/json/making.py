"""Json that is made of values: to_json, json_build_object, json_agg and their like."""

from __future__ import annotations

from penstock.sql.rules.core import (
    AggregateCall,
    Call,
    NamedColumn,
    Typed,
    aggregate,
    function,
    once,
    refuse,
    text,
)
from penstock.sql.rules.json import text as jsontext
from penstock.sql.rules.json.text import Raw
from penstock.sql.rules.queries.aggregates import nonempty, ordered
from penstock.sql.rules.types import ANY, JSON, JSONB
from penstock.sql.rules.values.texts import dated, json_text, output, to_text


def _made(name: str, sql: str) -> Typed:
    """Json of a function's own; jsonb if its name says so."""
    if not name.startswith("jsonb") and name != "to_jsonb":
        return Typed(sql, JSON)
    return Typed(jsontext.canonical(sql), JSONB, Raw(sql))


def _one(value: Typed) -> str:
    """One value as json text; null for NULL."""
    return f"coalesce({_written(value)}, 'null')"


def _written(value: Typed) -> str:
    kind = value.type
    if kind.name == "record":
        return _record(value)
    if kind.name in ("json", "jsonb"):
        return json_text(value)
    if kind.name == "array":
        inner = _one(Typed("x_e", kind.element or ANY))
        if "x_e" in value.sql:
            raise refuse("an array of arrays cannot become json")
        return f"concat('[', array_join(transform({value.sql}, x_e -> {inner}), ','), ']')"
    if kind.name == "bool":
        return f"CAST({value.sql} AS STRING)"
    if kind.floating:
        told = to_text(value)
        odd = f"isnan({value.sql}) OR abs({value.sql}) = DOUBLE('Infinity')"
        return f"IF({odd}, concat('\"', {told}, '\"'), {told})"
    if kind.number:
        return to_text(value)
    if kind.name in ("timestamp", "timestamptz"):
        return once(value, lambda v: dated(v, _moment(v, zoned=kind.name == "timestamptz")))
    if kind.name == "any":
        raise refuse("a value whose type is not known here cannot become json", hint="Cast it.")
    return jsontext.encoded(output(value))


def _moment(v: str, *, zoned: bool) -> str:
    zone = f", date_format({v}, 'xxxxx')" if zoned else ""
    return f"concat('\"', replace(CAST({v} AS STRING), ' ', 'T'){zone}, '\"')"


def _record(value: Typed) -> str:
    if not isinstance(value.value, tuple):
        raise refuse("this row cannot become json")
    parts = [
        f"concat({jsontext.encoded(text(field.name))}, ':', {_one(Typed(field.sql, field.type))})"
        for field in value.value
        if isinstance(field, NamedColumn)
    ]
    return f"concat('{{', concat_ws(',', {', '.join(parts)}), '}}')"


@function("json_build_object", "jsonb_build_object")
def _build_object(call: Call) -> Typed:
    if len(call.args) % 2:
        raise call.refuse("keys and values come in pairs")
    pairs = zip(call.args[::2], call.args[1::2], strict=True)
    parts = [f"concat({_key(key)}, ' : ', {_one(value)})" for key, value in pairs]
    return _made(call.name, f"concat('{{', concat_ws(', ', {', '.join(parts)}), '}}')" if parts else "'{}'")


def _key(value: Typed) -> str:
    fault = "CAST(raise_error('null value not allowed for object key') AS STRING)"
    told = jsontext.encoded(output(value))
    return f"coalesce({told}, {fault})" if value.value is None else told


@function("json_build_array", "jsonb_build_array")
def _build_array(call: Call) -> Typed:
    parts = [_one(value) for value in call.args]
    return _made(call.name, f"concat('[', concat_ws(', ', {', '.join(parts)}), ']')" if parts else "'[]'")


@function("to_json", "to_jsonb", "row_to_json")
def _to_json(call: Call) -> Typed:
    call.expect(1)
    return _made(call.name, _written(call.args[0]))


@aggregate("json_agg", "jsonb_agg")
def _agg(call: AggregateCall) -> Typed:
    value = call.args[0]
    if value.type.name not in ("record", "array"):
        made = f"array_join({nonempty(ordered(call, _one(value)))}, ', ')"
    else:
        # Rows and arrays stand on lines of their own, but for the first.
        piece = f"coalesce(concat('\\n ', {_written(value)}), 'null')"
        made = f"regexp_replace(array_join({nonempty(ordered(call, piece))}, ', '), '^\\n ', '')"
    return _made(call.name, f"concat('[', {made}, ']')")


@aggregate("json_object_agg", "jsonb_object_agg")
def _object_agg(call: AggregateCall) -> Typed:
    call.expect(2)
    piece = f"concat({_key(call.args[0])}, ' : ', {_one(call.args[1])})"
    made = nonempty(ordered(call, piece))
    return _made(call.name, f"concat('{{ ', array_join({made}, ', '), ' }}')")

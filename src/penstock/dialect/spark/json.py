"""Json and jsonb. Spark holds them as text; structs, maps and variants of tables are json too."""

from __future__ import annotations

from sqlglot import exp

from penstock.dialect.spark.casts import cast, coerce
from penstock.dialect.spark.core import (
    AggregateCall,
    Call,
    Context,
    Field,
    Typed,
    aggregate,
    function,
    refuse,
    rule,
    text,
)
from penstock.dialect.spark.rowsets import ARRAYS
from penstock.dialect.spark.texts import json_text, to_text
from penstock.dialect.spark.types import BOOL, INT4, JSON, TEXT, Type, array

_KEEP = "map('ignoreNullFields', 'false')"


def variant(value: Typed) -> str:
    """Json as Spark's variant."""
    if value.type.name == "unknown":
        value = cast(value, JSON)
    return f"parse_json({json_text(value)})"


def _chain(context: Context, node: exp.Expr) -> tuple[Typed, list[str]]:
    """The json that a chain of arrows begins with, and the path that they walk."""
    if isinstance(node, exp.JSONExtract) and not isinstance(node, exp.JSONExtractScalar):
        base, path = _chain(context, node.this)
        return base, [*path, _step(context, node.args["expression"])]
    if isinstance(node, exp.JSONBExtract) and not isinstance(node, exp.JSONBExtractScalar):
        base, path = _chain(context, node.this)
        return base, [*path, *_steps(context, node.args["expression"])]
    if isinstance(node, exp.Paren):
        return _chain(context, node.this)
    value = context.expr(node)
    if value.type.name not in ("json", "jsonb"):
        raise refuse(f"-> wants json, not {value.type.name}", node, sqlstate="42883")
    return value, []


def _step(context: Context, node: exp.Expr) -> str:
    key = context.expr(node)
    if isinstance(key.value, int) and key.type.integer:
        if key.value < 0:
            raise refuse("a negative place in json is not supported", node)
        return f"[{key.value}]"
    if isinstance(key.value, str):
        return _named(key.value)
    raise refuse("the key of -> must be a literal", node)


def _named(key: str) -> str:
    if "'" in key and '"' in key:
        raise refuse("a key with both kinds of quotes is not supported")
    return f"['{key}']" if "'" not in key else f'["{key}"]'


def _steps(context: Context, node: exp.Expr) -> list[str]:
    path = context.expr(node)
    if path.type.name == "unknown":
        path = cast(path, array(TEXT))
    if not isinstance(path.value, list):
        raise refuse("the path of #> must be a literal", node)
    steps = []
    for key in path.value:
        if key is None:
            raise refuse("NULL in a path is not supported", node)
        # A number is a place in an array; it could be a key too, which Spark's paths cannot leave open.
        steps.append(f"[{key}]" if str(key).isdigit() else _named(str(key)))
    return steps


@rule(exp.JSONExtract, exp.JSONBExtract)
def _json(context: Context, node: exp.Expr) -> Typed:
    base, path = _chain(context, node)
    sql = f"to_json(variant_get({variant(base)}, {text('$' + ''.join(path))}, 'variant'))"
    return Typed(sql, Type("jsonb" if base.type.name == "jsonb" else "json"))


@rule(exp.JSONExtractScalar, exp.JSONBExtractScalar)
def _text(context: Context, node: exp.Expr) -> Typed:
    base, path = _chain(context, node.this)
    last = node.args["expression"]
    path += [_step(context, last)] if isinstance(node, exp.JSONExtractScalar) else _steps(context, last)
    return Typed(f"variant_get({variant(base)}, {text('$' + ''.join(path))}, 'string')", TEXT)


@function("json_extract_path", "jsonb_extract_path", "json_extract_path_text", "jsonb_extract_path_text")
def _extract_path(call: Call) -> Typed:
    steps = []
    for key in call.args[1:]:
        if not isinstance(key.value, str):
            raise call.refuse("keys must be literals")
        steps.append(f"[{key.value}]" if key.value.isdigit() else _named(key.value))
    path = text("$" + "".join(steps))
    if call.name.endswith("_text"):
        return Typed(f"variant_get({variant(call.args[0])}, {path}, 'string')", TEXT)
    return Typed(f"to_json(variant_get({variant(call.args[0])}, {path}, 'variant'))", JSON)


@rule(exp.JSONBContainsTopKey)
def _has_key(context: Context, node: exp.Expr) -> Typed:
    value = context.expr(node.this)
    if value.type.name != "jsonb" and not value.type.native:
        raise refuse("? wants jsonb", node, sqlstate="42883")
    key = coerce(context.expr(node.args["expression"]), TEXT)
    found = f"array_contains(json_object_keys({json_text(value)}), {key.sql})"
    return Typed(f"coalesce({found}, IF({value.sql} IS NULL, NULL, false))", BOOL)


@function("json_array_length", "jsonb_array_length")
def _array_length(call: Call) -> Typed:
    call.expect(1)
    value = cast(call.args[0], JSON) if call.args[0].type.name == "unknown" else call.args[0]
    return Typed(f"json_array_length({json_text(value)})", INT4)


@function("json_typeof", "jsonb_typeof")
def _typeof(call: Call) -> Typed:
    call.expect(1)
    kind = f"schema_of_variant({variant(call.args[0])})"
    sql = (
        f"(CASE WHEN {kind} LIKE 'OBJECT%' THEN 'object' WHEN {kind} LIKE 'ARRAY%' THEN 'array'"
        f" WHEN {kind} = 'STRING' THEN 'string' WHEN {kind} = 'BOOLEAN' THEN 'boolean'"
        f" WHEN {kind} = 'VOID' THEN 'null' WHEN {kind} IS NOT NULL THEN 'number' END)"
    )
    return Typed(sql, TEXT)


def member(value: Typed) -> str:
    """A value as part of json that Spark's to_json writes."""
    kind = value.type
    if kind.name in ("json", "jsonb"):
        return value.sql if kind.native else f"parse_json({value.sql})"
    if kind.name == "timestamp":
        return f"replace(CAST({value.sql} AS STRING), ' ', 'T')"
    if kind.name == "timestamptz":
        return f"concat(replace(CAST({value.sql} AS STRING), ' ', 'T'), date_format({value.sql}, 'xxx'))"
    if kind.number or kind.name in ("bool", "record", "array"):
        return value.sql
    if kind.name == "unknown" and value.value is None:
        return "CAST(NULL AS STRING)"
    return to_text(value)


@function("json_build_object", "jsonb_build_object")
def _build_object(call: Call) -> Typed:
    if len(call.args) % 2:
        raise call.refuse("keys and values come in pairs")
    parts = []
    for key, value in zip(call.args[::2], call.args[1::2], strict=True):
        if not isinstance(key.value, str):
            raise call.refuse("keys must be literals")
        parts += [text(key.value), member(value)]
    kind = Type("jsonb" if call.name.startswith("jsonb") else "json")
    return Typed(f"to_json(named_struct({', '.join(parts)}), {_KEEP})" if parts else "'{}'", kind)


@function("json_build_array", "jsonb_build_array")
def _build_array(call: Call) -> Typed:
    parts = [_one(value) for value in call.args]
    kind = Type("jsonb" if call.name.startswith("jsonb") else "json")
    return Typed(f"concat('[', concat_ws(', ', {', '.join(parts)}), ']')" if parts else "'[]'", kind)


def _one(value: Typed) -> str:
    """One value as json text."""
    inner = f"to_json(named_struct('v', {member(value)}), {_KEEP})"
    return f"substring({inner}, 6, char_length({inner}) - 6)"


@function("to_json", "to_jsonb", "row_to_json")
def _to_json(call: Call) -> Typed:
    call.expect(1)
    value = call.args[0]
    if value.type.name == "record":
        return Typed(_record(value), JSON)
    if value.type.name == "any":
        raise call.refuse("a value whose type is not known here")
    return Typed(f"IF({value.sql} IS NULL, NULL, {_one(value)})", JSON)


def _record(value: Typed) -> str:
    if not isinstance(value.value, tuple):
        raise refuse("this row cannot become json")
    parts = []
    for field in value.value:
        if isinstance(field, Field):
            parts += [text(field.name), member(Typed(field.sql, field.type))]
    return f"to_json(named_struct({', '.join(parts)}), {_KEEP})"


@aggregate("json_agg", "jsonb_agg")
def _agg(call: AggregateCall) -> Typed:
    from penstock.dialect.spark.aggregates import nonempty, ordered

    value = call.args[0]
    piece = _record(value) if value.type.name == "record" else _one(value)
    made = nonempty(ordered(call, piece))
    return Typed(f"concat('[', array_join({made}, ', '), ']')", Type(call.name.removesuffix("_agg")))


@aggregate("json_object_agg", "jsonb_object_agg")
def _object_agg(call: AggregateCall) -> Typed:
    from penstock.dialect.spark.aggregates import nonempty, ordered

    call.expect(2)
    if call.name.startswith("jsonb"):
        raise call.refuse("keys that come twice are not supported")
    key = f"to_json(named_struct('v', {to_text(call.args[0])}))"
    piece = f"concat(substring({key}, 6, char_length({key}) - 6), ' : ', {_one(call.args[1])})"
    return Typed(f"concat('{{ ', array_join({nonempty(ordered(call, piece))}, ', '), ' }}')", JSON)


def _elements(_context: Context, args: list[Typed], node: exp.Expr) -> Typed:
    name = node.name.lower()
    kind = Type("jsonb" if name.startswith("jsonb") else "json")
    items = f"CAST({variant(args[0])} AS ARRAY<VARIANT>)"
    if name.endswith("_text"):
        return Typed(f"transform({items}, x_e -> variant_get(x_e, '$', 'string'))", array(TEXT))
    return Typed(f"transform({items}, x_e -> to_json(x_e))", array(kind))


def _keys(_context: Context, args: list[Typed], _node: exp.Expr) -> Typed:
    value = cast(args[0], JSON) if args[0].type.name == "unknown" else args[0]
    return Typed(f"json_object_keys({json_text(value)})", array(TEXT))


for _name in (
    "json_array_elements",
    "jsonb_array_elements",
    "json_array_elements_text",
    "jsonb_array_elements_text",
):
    ARRAYS[_name] = _elements
ARRAYS["json_object_keys"] = ARRAYS["jsonb_object_keys"] = _keys

"""Json and jsonb. Spark holds them as text; structs, maps and variants of tables are json too."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from penstock.sql.rules.core import Call, Context, Typed, function, refuse, rule, text
from penstock.sql.rules.json import text as jsontext
from penstock.sql.rules.json.text import Raw
from penstock.sql.rules.queries.rowsets import ARRAYS
from penstock.sql.rules.types import BOOL, INT4, JSON, JSONB, TEXT, Type, array
from penstock.sql.rules.values.casts import cast, coerce
from penstock.sql.rules.values.texts import json_text

_PLACE = re.compile("-?[0-9]+")
_LONGEST_PLACE = 20
Step = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Path:
    """The json that a chain of arrows begins with, and the way that they go.

    ``known`` is the way in Spark's own language, if it can be said in that.
    """

    base: Typed
    steps: tuple[Step, ...] = ()
    known: str | None = "$"

    def then(self, step: Step, known: str | None) -> _Path:
        whole = self.known + known if self.known is not None and known is not None else None
        return _Path(self.base, (*self.steps, step), whole)

    @property
    def binary(self) -> bool:
        return self.base.type.name == "jsonb"

    @property
    def sql(self) -> str:
        found = raw(self.base)
        for step in self.steps:
            found = step(found)
        return found


def raw(value: Typed) -> str:
    """A document as it was written, before it became jsonb."""
    if value.type.name == "unknown":
        value = cast(value, JSON)
    return value.value.sql if isinstance(value.value, Raw) else json_text(value)


def _chain(context: Context, node: exp.Expr) -> _Path:
    if isinstance(node, exp.JSONExtract) and not isinstance(node, exp.JSONExtractScalar):
        return _stepped(context, _chain(context, node.this), node.args["expression"])
    if isinstance(node, exp.JSONBExtract) and not isinstance(node, exp.JSONBExtractScalar):
        return _walked(context, _chain(context, node.this), node.args["expression"])
    if isinstance(node, exp.Paren):
        return _chain(context, node.this)
    value = context.expr(node)
    if value.type.name not in ("json", "jsonb"):
        raise refuse(f"-> wants json, not {value.type.name}", node, sqlstate="42883")
    return _Path(value)


def _stepped(context: Context, path: _Path, node: exp.Expr) -> _Path:
    """``-> key`` or ``-> place``."""
    key = context.expr(node)
    if key.type.integer:
        known = f"[{key.value}]" if isinstance(key.value, int) and key.value >= 0 else None
        return path.then(lambda sql: jsontext.at_place(sql, key.sql), known)
    if key.type.textual or key.type.name == "unknown":
        named = coerce(key, TEXT).sql
        known = _named(key.value) if isinstance(key.value, str) else None
        return path.then(lambda sql: jsontext.at_key(sql, named), known)
    raise refuse("the key of -> must be a text or a whole number", node, sqlstate="42883")


def _named(key: str) -> str | None:
    return f"['{key}']" if not set(key) & {"'", '"', "\\", "]", "*"} else None


def _walked(context: Context, path: _Path, node: exp.Expr) -> _Path:
    """``#> path``."""
    keys = context.expr(node)
    if keys.type.name == "unknown":
        keys = cast(keys, array(TEXT))
    if not isinstance(keys.value, list):
        raise refuse("the path of #> must be a literal", node)
    for key in keys.value:
        if key is None:
            raise refuse("NULL in a path is not supported", node)
        path = _keyed(path, str(key))
    return path


def _keyed(path: _Path, key: str) -> _Path:
    """A key that is a place where it meets an array."""

    def step(sql: str) -> str:
        named = jsontext.at_key("x_w", text(key))
        if not _PLACE.fullmatch(key):
            return jsontext.at_key(sql, text(key))
        if len(key) > _LONGEST_PLACE:
            raise refuse("an array has no place of so many digits")
        placed = jsontext.at_place("x_w", str(int(key)))
        return f"transform(array({sql}), x_w -> IF({jsontext.kind('x_w')} = 'array', {placed}, {named}))[0]"

    return path.then(step, None if _PLACE.fullmatch(key) else _named(key))


def _document(path: _Path) -> Typed:
    if not path.binary:
        return Typed(path.sql, JSON)
    return Typed(jsontext.canonical(path.sql), JSONB, Raw(path.sql))


def _as_text(path: _Path) -> Typed:
    exact = jsontext.shown(path.sql, binary=path.binary)
    if path.known is None:
        return Typed(exact, TEXT)
    # Spark finds strings and whole numbers sooner; others it would spell in its own way.
    found = f"variant_get(x_v, {text(path.known)}, 'variant')"
    quick = (
        f"CASE WHEN x_v IS NULL OR schema_of_variant({found}) LIKE 'DECIMAL%'"
        f" OR schema_of_variant({found}) IN ('DOUBLE', 'FLOAT') OR schema_of_variant({found}) LIKE 'OBJECT%'"
        f" OR schema_of_variant({found}) LIKE 'ARRAY%' THEN {exact}"
        f" WHEN schema_of_variant({found}) = 'VOID' THEN NULL"
        f" ELSE variant_get(x_v, {text(path.known)}, 'string') END"
    )
    return Typed(f"transform(array(try_parse_json({raw(path.base)})), x_v -> {quick})[0]", TEXT)


@rule(exp.JSONExtract, exp.JSONBExtract)
def _json(context: Context, node: exp.Expr) -> Typed:
    return _document(_chain(context, node))


@rule(exp.JSONExtractScalar, exp.JSONBExtractScalar)
def _text(context: Context, node: exp.Expr) -> Typed:
    path, last = _chain(context, node.this), node.args["expression"]
    step = _stepped if isinstance(node, exp.JSONExtractScalar) else _walked
    return _as_text(step(context, path, last))


@function("json_extract_path", "jsonb_extract_path", "json_extract_path_text", "jsonb_extract_path_text")
def _extract_path(call: Call) -> Typed:
    base = call.args[0]
    if base.type.name == "unknown":
        base = cast(base, JSONB if call.name.startswith("jsonb") else JSON)
    path = _Path(base)
    for key in call.args[1:]:
        if not isinstance(key.value, str):
            raise call.refuse("keys must be literals")
        path = _keyed(path, key.value)
    return _as_text(path) if call.name.endswith("_text") else _document(path)


@rule(exp.JSONBContainsTopKey)
def _has_key(context: Context, node: exp.Expr) -> Typed:
    value = context.expr(node.this)
    if value.type.name != "jsonb" and not value.type.native:
        raise refuse("? wants jsonb", node, sqlstate="42883")
    key = coerce(context.expr(node.args["expression"]), TEXT).sql
    word = f"{jsontext.kind('x_m.v')} = 'string' AND {jsontext.decoded('x_m.v')} = {key}"
    members = jsontext.children("x_j")
    inner = (
        f"CASE {jsontext.kind('x_j')} WHEN 'object' THEN exists({members}, x_m -> x_m.k = {key})"
        f" WHEN 'array' THEN exists({members}, x_m -> {word})"
        f" WHEN 'string' THEN {jsontext.decoded('x_j')} = {key} ELSE IF(x_j IS NULL, NULL, false) END"
    )
    return Typed(f"transform(array({raw(value)}), x_j -> {inner})[0]", BOOL)


@function("json_array_length", "jsonb_array_length")
def _array_length(call: Call) -> Typed:
    call.expect(1)
    return Typed(f"size({_members(call.args[0], 'array', 'cannot get array length of a non-array')})", INT4)


def _members(value: Typed, wanted: str, fault: str) -> str:
    """The members of a document of one kind; an error for another one, NULL for NULL."""
    stop = f"CAST(raise_error({text(fault)}) AS ARRAY<STRUCT<k: STRING, v: STRING>>)"
    inner = f"IF({jsontext.kind('x_j')} = '{wanted}', {jsontext.children('x_j')}, {stop})"
    # Members of a jsonb are written as the whole is.
    base = value.sql if value.type.name == "jsonb" and not value.type.native else raw(value)
    return f"transform(array({base}), x_j -> IF(x_j IS NULL, NULL, {inner}))[0]"


@function("json_typeof", "jsonb_typeof")
def _typeof(call: Call) -> Typed:
    call.expect(1)
    sql = f"transform(array({raw(call.args[0])}), x_j -> {jsontext.kind('x_j')})[0]"
    return Typed(sql, TEXT)


def _of_kind(name: str, value: Typed) -> Typed:
    """A literal of the type that the function's name tells."""
    kind = JSONB if name.startswith("jsonb") else JSON
    return cast(value, kind) if value.type.name == "unknown" else value


def _elements(_context: Context, args: list[Typed], node: exp.Expr) -> Typed:
    name = node.name.lower()
    value = _of_kind(name, args[0])
    members = _members(value, "array", "cannot extract elements from a non-array")
    if name.endswith("_text"):
        told = jsontext.shown("x_m.v", binary=False)
        return Typed(f"transform({members}, x_m -> {told})", array(TEXT))
    return Typed(f"transform({members}, x_m -> x_m.v)", array(Type(name.partition("_")[0])))


def _keys(_context: Context, args: list[Typed], node: exp.Expr) -> Typed:
    name = node.name.lower()
    members = _members(_of_kind(name, args[0]), "object", f"cannot call {name} on a non-object")
    return Typed(f"transform({members}, x_m -> x_m.k)", array(TEXT))


def each(name: str, value: Typed) -> str:
    """The members of an object, for ``json_each`` and its like."""
    return _members(_of_kind(name, value), "object", f"cannot call {name} on a non-object")


for _name in (
    "json_array_elements",
    "jsonb_array_elements",
    "json_array_elements_text",
    "jsonb_array_elements_text",
):
    ARRAYS[_name] = _elements
ARRAYS["json_object_keys"] = ARRAYS["jsonb_object_keys"] = _keys

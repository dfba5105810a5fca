"""How a call finds its rule, and functions of no particular subject."""

from __future__ import annotations

from sqlglot import exp

from penstock.dialect.postgres import AGGREGATES as AGGREGATE_NAMES
from penstock.dialect.spark.casts import cast, coerce, unify
from penstock.dialect.spark.core import (
    FUNCTIONS,
    Call,
    Context,
    Typed,
    function,
    name_of,
    refuse,
    rule,
)
from penstock.dialect.spark.operators import compare
from penstock.dialect.spark.shared import SHARED
from penstock.dialect.spark.texts import plain, shown
from penstock.dialect.spark.types import ANY, BYTEA, INT4, TEXT, UUID, Type

_NEVER = frozenset({"java_method", "reflect", "try_reflect"})


@rule(exp.Anonymous)
def _call(context: Context, node: exp.Expr) -> Typed:
    name = name_of(node.this) if isinstance(node.this, exp.Identifier) else str(node.this).lower()
    if name == "array" and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
        from penstock.dialect.spark.arrays import of_query

        return of_query(context, node.expressions[0])
    if name == "row":
        raise refuse("ROW is only supported in comparisons", node)
    found = FUNCTIONS.get(name)
    if found is None:
        if name in SHARED or name in _NEVER or name in AGGREGATE_NAMES:
            raise refuse(f"the function {name} is not supported", node)
        # Spark has functions that PostgreSQL does not know; nobody is misled by them.
        args = context.exprs(node.expressions)
        return Typed(f"{name}({', '.join(arg.sql for arg in args)})", ANY)
    if (
        any(isinstance(arg, exp.Kwarg | exp.Variadic | exp.Star) for arg in node.expressions)
        and name != "make_interval"
    ):
        raise refuse(f"{name} with named or variadic arguments is not supported", node)
    args = [] if name == "make_interval" else context.exprs(node.expressions)
    return found(Call(context, name, args, node))


def texts(call: Call, *, count: int | None = None) -> list[str]:
    """The arguments as texts."""
    out = []
    for arg in call.args[:count]:
        if not (arg.type.textual or arg.type.name in ("unknown", "any")):
            raise call.refuse(f"a value of type {arg.type.name} where a text is wanted")
        out.append(plain(coerce(arg, TEXT)))
    return out


@function("coalesce")
def _coalesce(call: Call) -> Typed:
    values, kind = unify(call.args)
    return Typed(f"coalesce({', '.join(value.sql for value in values)})", kind)


@function("nullif")
def _nullif(call: Call) -> Typed:
    call.expect(2)
    left, right = call.args
    if left.type.name == "unknown":
        left = coerce(left, right.type if right.type.name != "unknown" else TEXT)
    test = compare("=", left, right)
    return Typed(f"(CASE WHEN {test.sql} THEN NULL ELSE {left.sql} END)", left.type)


@function("greatest", "least")
def _extreme(call: Call) -> Typed:
    values, kind = unify(call.args)
    if len(values) == 1:
        return values[0]
    return Typed(f"{call.name}({', '.join(value.sql for value in values)})", kind)


@function("md5")
def _md5(call: Call) -> Typed:
    call.expect(1)
    value = call.args[0]
    return Typed(f"md5({value.sql if value.type.name == 'bytea' else texts(call)[0]})", TEXT)


@function("sha224", "sha256", "sha384", "sha512")
def _sha(call: Call) -> Typed:
    call.expect(1)
    value = cast(call.args[0], BYTEA) if call.args[0].type.name == "unknown" else call.args[0]
    if value.type.name != "bytea":
        raise call.refuse("a bytea is wanted")
    return Typed(f"unhex(sha2({value.sql}, {call.name[3:]}))", BYTEA)


@function("encode")
def _encode(call: Call) -> Typed:
    call.expect(2)
    value = cast(call.args[0], BYTEA) if call.args[0].type.name == "unknown" else call.args[0]
    form = call.args[1].value
    if value.type.name != "bytea":
        raise call.refuse("a bytea is wanted")
    if form == "hex":
        return Typed(f"lower(hex({value.sql}))", TEXT)
    if form == "base64":
        # PostgreSQL breaks lines after 76 characters.
        return Typed(
            f"regexp_replace(regexp_replace(base64({value.sql}), '\\\\s', ''), '(.{{76}})(?=.)', '$1\\n')",
            TEXT,
        )
    raise call.refuse("only the forms hex and base64 are supported")


@function("decode")
def _decode(call: Call) -> Typed:
    call.expect(2)
    value = texts(call, count=1)[0]
    form = call.args[1].value
    if form == "hex":
        return Typed(f"unhex({value})", BYTEA)
    if form == "base64":
        return Typed(f"unbase64(regexp_replace({value}, '\\\\s', ''))", BYTEA)
    raise call.refuse("only the forms hex and base64 are supported")


@function("convert_to")
def _convert_to(call: Call) -> Typed:
    call.expect(2)
    _utf8(call)
    return Typed(f"CAST({texts(call, count=1)[0]} AS BINARY)", BYTEA)


@function("convert_from")
def _convert_from(call: Call) -> Typed:
    call.expect(2)
    _utf8(call)
    return Typed(f"decode({call.args[0].sql}, 'UTF-8')", TEXT)


def _utf8(call: Call) -> None:
    if str(call.args[1].value).lower().replace("-", "") not in ("utf8", "unicode"):
        raise call.refuse("only UTF8 is supported")


@function("gen_random_uuid", "uuid_generate_v4")
def _uuid(call: Call) -> Typed:
    call.expect(0)
    return Typed("uuid()", UUID)


@function("random")
def _random(call: Call) -> Typed:
    call.expect(0)
    return Typed("rand()", Type("float8"))


@function("num_nonnulls", "num_nulls")
def _nulls(call: Call) -> Typed:
    test = "IS NOT NULL" if call.name == "num_nonnulls" else "IS NULL"
    return Typed(f"({' + '.join(f'CAST(({arg.sql} {test}) AS INT)' for arg in call.args)})", INT4)


@function("format")
def _format(call: Call) -> Typed:
    """Literal patterns of ``%s``, ``%I``, ``%L`` and ``%%``."""
    pattern = call.args[0].value
    if not isinstance(pattern, str):
        raise call.refuse("the pattern must be a literal")
    parts: list[str] = []
    rest = list(call.args[1:])
    pieces = pattern.split("%")
    parts.append(_quoted(pieces[0]))
    at = 1
    while at < len(pieces):
        piece = pieces[at]
        if piece == "":
            at += 1
            parts.append(_quoted("%" + (pieces[at] if at < len(pieces) else "")))
        elif piece[0] == "s" and rest:
            parts += [f"coalesce({shown(rest.pop(0))}, '')", _quoted(piece[1:])]
        else:
            raise call.refuse("only %s and %% are supported")
        at += 1
    return Typed(f"concat({', '.join(part for part in parts if part) or _quoted('') or chr(39) * 2})", TEXT)


def _quoted(value: str) -> str:
    from penstock.dialect.spark.core import text

    return text(value) if value else ""

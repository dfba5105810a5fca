"""How a call finds its rule, and functions of no particular subject."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from penstock.sql.parse.postgres import AGGREGATES as AGGREGATE_NAMES
from penstock.sql.rules.core import FUNCTIONS, Call, Context, Typed, function, name_of, once, refuse, rule
from penstock.sql.rules.queries import lockstep
from penstock.sql.rules.queries.rowsets import ARRAYS
from penstock.sql.rules.shared import SHARED
from penstock.sql.rules.time import intervals
from penstock.sql.rules.types import ANY, BYTEA, INT4, PARTS, TEXT, UUID, Type
from penstock.sql.rules.values.casts import cast, coerce, from_hex, unify
from penstock.sql.rules.values.operators import compare, ranked
from penstock.sql.rules.values.texts import plain

_CONDITIONAL = frozenset({"coalesce", "nullif", "greatest", "least"})
"""Here PostgreSQL allows no functions of rows, as in CASE."""
_NEVER = frozenset({"java_method", "reflect", "try_reflect"})


@rule(exp.Anonymous)
def _call(context: Context, node: exp.Expr) -> Typed:
    name = name_of(node.this) if isinstance(node.this, exp.Identifier) else str(node.this).lower()
    if name == "array" and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
        from penstock.sql.rules.values.arrays import of_query

        return of_query(context, node.expressions[0])
    if name == "row":
        raise refuse("ROW is only supported in comparisons", node)
    found = FUNCTIONS.get(name) or (lockstep.element if name in ARRAYS else None)
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
    inner = replace(context, rows=None) if name in _CONDITIONAL else context
    args = [] if name == "make_interval" else inner.exprs(node.expressions)
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
    if kind == PARTS or kind.name in ("array", "bpchar"):
        # By what PostgreSQL compares, which Spark does not see. Of equal ones it is the first.
        size = {"interval": intervals.size, "array": ranked, "bpchar": plain}[kind.name]
        word, sign = ("array_max", -1) if call.name == "greatest" else ("array_min", 1)
        pairs = ", ".join(
            f"struct({size(value)} AS k, {sign * place} AS n, {value.sql} AS v)"
            for place, value in enumerate(values, 1)
        )
        return Typed(f"{word}(filter(array({pairs}), x_e -> x_e.v IS NOT NULL)).v", kind)
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
        return Typed(once(Typed(value, TEXT), from_hex), BYTEA)
    if form == "base64":
        # Not unbase64, which passes over what it cannot read.
        return Typed(f"to_binary(regexp_replace({value}, '\\\\s', ''), 'base64')", BYTEA)
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

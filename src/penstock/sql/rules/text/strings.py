"""Functions on texts."""

from __future__ import annotations

from sqlglot import exp

from penstock.sql.rules.core import (
    Call,
    Context,
    Typed,
    at_least,
    between,
    function,
    once,
    refuse,
    rule,
    text,
)
from penstock.sql.rules.functions import texts
from penstock.sql.rules.types import BOOL, BYTEA, INT4, TEXT
from penstock.sql.rules.values.casts import coerce
from penstock.sql.rules.values.texts import shown, to_text


@function("lower", "upper")
def _case(call: Call) -> Typed:
    call.expect(1)
    return Typed(f"{call.name}({texts(call)[0]})", TEXT)


@function("reverse")
def _reverse(call: Call) -> Typed:
    call.expect(1)
    return Typed(f"reverse({texts(call)[0]})", TEXT)


@function("replace", "translate")
def _replace(call: Call) -> Typed:
    call.expect(3)
    value, old, new = texts(call)
    if call.name == "replace":
        return Typed(f"IF({new} IS NULL, NULL, replace({value}, {old}, {new}))", TEXT)
    return Typed(f"translate({value}, {old}, {new})", TEXT)


@function("initcap")
def _initcap(call: Call) -> Typed:
    """Words begin after whatever is no letter or digit, not only after blanks."""
    call.expect(1)
    words = (
        f"regexp_extract_all(lower({texts(call)[0]}), '[\\\\p{{L}}\\\\p{{N}}]+|[^\\\\p{{L}}\\\\p{{N}}]+', 0)"
    )
    return Typed(f"array_join(transform({words}, w -> concat(upper(left(w, 1)), substring(w, 2))), '')", TEXT)


@function("length", "char_length", "character_length")
def _length(call: Call) -> Typed:
    call.expect(1)
    value = call.args[0]
    if value.type.name == "bytea":
        return Typed(f"octet_length({value.sql})", INT4)
    return Typed(f"char_length({texts(call)[0]})", INT4)


@function("octet_length", "bit_length")
def _octets(call: Call) -> Typed:
    call.expect(1)
    value = call.args[0]
    # The blanks of a char(n) are octets, but there is no bit_length for it.
    is_counted = value.type.name == "bytea" or (value.type.name == "bpchar" and call.name == "octet_length")
    return Typed(f"{call.name}({value.sql if is_counted else texts(call)[0]})", INT4)


@function("left", "right")
def _ends(call: Call) -> Typed:
    """A negative count leaves out that many at the other end."""
    call.expect(2)
    value, count = texts(call, count=1)[0], coerce(call.args[1], INT4)
    if isinstance(count.value, int) and count.value >= 0:
        return Typed(f"{call.name}({value}, {count.sql})", TEXT)

    def body(v: str) -> str:
        keep = f"IF({count.sql} < 0, greatest(0, char_length({v}) + {count.sql}), {count.sql})"
        if call.name == "left":
            return f"substring({v}, 1, {keep})"
        return f"substring({v}, greatest(1, char_length({v}) - {keep} + 1), {keep})"

    return Typed(once(Typed(value, TEXT), body), TEXT)


@function("lpad", "rpad")
def _pad(call: Call) -> Typed:
    call.expect(2, 3)
    value = texts(call, count=1)[0]
    size = coerce(call.args[1], INT4).sql
    fill = coerce(call.args[2], TEXT).sql if len(call.args) == 3 else "' '"
    return Typed(f"{call.name}({value}, {at_least(0, size)}, {fill})", TEXT)


@function("repeat")
def _repeat(call: Call) -> Typed:
    call.expect(2)
    return Typed(f"repeat({texts(call, count=1)[0]}, {coerce(call.args[1], INT4).sql})", TEXT)


@function("btrim", "ltrim", "rtrim")
def _trims(call: Call) -> Typed:
    call.expect(1, 2)
    value = call.args[0]
    if value.type.name == "bytea":
        raise call.refuse("bytea is not supported")
    sides = {"btrim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
    what = texts(call)
    return Typed(f"trim({sides[call.name]} {what[1] if len(what) > 1 else text(' ')} FROM {what[0]})", TEXT)


@rule(exp.Trim)
def _trim(context: Context, node: exp.Expr) -> Typed:
    side = node.args.get("position") or "BOTH"
    value = to_text(_textual(context.expr(node.this), node))
    if node.args.get("collation"):
        raise refuse("this form of trim is not supported", node)
    what = node.args.get("expression")
    letters = to_text(_textual(context.expr(what), node)) if what is not None else text(" ")
    return Typed(f"trim({side} {letters} FROM {value})", TEXT)


def _textual(value: Typed, node: exp.Expr) -> Typed:
    if value.type.textual or value.type.name in ("unknown", "any"):
        return value
    raise refuse(f"a value of type {value.type.name} where a text is wanted", node, sqlstate="42883")


@rule(exp.Substring)
def _substring(context: Context, node: exp.Expr) -> Typed:
    value = context.expr(node.this)
    start, length = node.args.get("start"), node.args.get("length")
    args = [value, context.expr(start)] + ([context.expr(length)] if length is not None else [])
    return substring(Call(context, "substring", args, node))


@function("substr", "substring")
def substring(call: Call) -> Typed:
    """By places from 1, where those before the first count too; or by a pattern."""
    call.expect(2, 3)
    value, start = call.args[0], call.args[1]
    if start.type.textual or start.type.name == "unknown":
        from penstock.sql.rules.text.patterns import extract

        if len(call.args) == 3:
            raise call.refuse("the form of SQL with an escape is not supported")
        return Typed(extract(call, texts(call, count=1)[0], start), TEXT)
    if not start.type.integer:
        raise call.refuse("the start must be an integer")
    kind = BYTEA if value.type.name == "bytea" else TEXT
    sql = value.sql if kind == BYTEA else texts(call, count=1)[0]
    first = start.sql
    if len(call.args) == 2:
        return Typed(f"substring({sql}, {at_least(1, first)})", kind)
    size = coerce(call.args[2], INT4)
    if isinstance(start.value, int) and start.value >= 1 and isinstance(size.value, int) and size.value >= 0:
        return Typed(f"substring({sql}, {first}, {size.sql})", kind)
    checked = (
        f"IF({size.sql} < 0, CAST(raise_error('negative substring length not allowed') AS INT), {size.sql})"
    )
    # Places before the first take of the length.
    size_left = at_least(0, f"({checked} + IF({first} > 1, 0, {first} - 1))")
    return Typed(f"substring({sql}, {at_least(1, first)}, {size_left})", kind)


@rule(exp.StrPosition)
def _position(context: Context, node: exp.Expr) -> Typed:
    value, part = context.expr(node.this), context.expr(node.args["substr"])
    return Typed(f"instr({to_text(_textual(value, node))}, {to_text(_textual(part, node))})", INT4)


@function("strpos")
def _strpos(call: Call) -> Typed:
    call.expect(2)
    value, part = texts(call)
    return Typed(f"instr({value}, {part})", INT4)


@rule(exp.Overlay)
def _overlay(context: Context, node: exp.Expr) -> Typed:
    value = to_text(_textual(context.expr(node.this), node))
    new = to_text(_textual(context.expr(node.args["expression"]), node))
    start = context.expr(node.args["from_"])
    size = node.args.get("for_")
    length = context.expr(size).sql if size is not None else f"char_length({new})"
    first = coerce(start, INT4).sql
    fault = "CAST(raise_error('negative substring length not allowed') AS STRING)"
    # Spark's own takes a negative length for none, and begins at 0 and before.
    rest = f"substring({value}, {at_least(1, f'({first} + {length})')})"
    return Typed(f"IF({first} < 1, {fault}, concat(left({value}, {first} - 1), {new}, {rest}))", TEXT)


@function("split_part")
def _split_part(call: Call) -> Typed:
    call.expect(3)
    value, mark = texts(call, count=2)
    place = coerce(call.args[2], INT4).sql
    return Typed(
        f"IF({mark} = '' AND {place} <> 0, IF({place} IN (1, -1), {value}, left({value}, 0)),"
        f" split_part({value}, {mark}, {place}))",
        TEXT,
    )


@function("concat")
def _concat(call: Call) -> Typed:
    parts = [f"coalesce({shown(arg)}, '')" for arg in call.args]
    return Typed(f"concat({', '.join(parts)})", TEXT)


@function("concat_ws")
def _concat_ws(call: Call) -> Typed:
    if len(call.args) < 2:
        raise call.refuse("at least two arguments are wanted")
    return Typed(
        f"concat_ws({', '.join([texts(call, count=1)[0], *(shown(arg) for arg in call.args[1:])])})", TEXT
    )


@function("chr")
def _chr(call: Call) -> Typed:
    call.expect(1)
    # Spark's own takes the number modulo 256.
    fault = "CAST(raise_error('requested character is not a valid one') AS STRING)"

    def body(v: str) -> str:
        # Halves of pairs are no characters of their own.
        valid = f"{between(1, v, 1114111)} AND NOT {between(55296, v, 57343)}"
        return f"IF({v} IS NULL OR {valid}, decode(unhex(lpad(hex({v}), 8, '0')), 'UTF-32'), {fault})"

    return Typed(once(coerce(call.args[0], INT4), body), TEXT)


@function("ascii")
def _ascii(call: Call) -> Typed:
    call.expect(1)
    return Typed(f"ascii({texts(call)[0]})", INT4)


@function("to_hex")
def _to_hex(call: Call) -> Typed:
    call.expect(1)
    value = call.args[0]
    if not value.type.integer:
        raise call.refuse("an integer is wanted")
    if value.type.name == "int8":
        return Typed(f"lower(hex({value.sql}))", TEXT)
    return Typed(f"lower(hex(CAST({value.sql} AS BIGINT) & 4294967295L))", TEXT)


@function("starts_with")
def _starts_with(call: Call) -> Typed:
    call.expect(2)
    value, part = texts(call)
    return Typed(f"startswith({value}, {part})", BOOL)


@function("string_to_array")
def _string_to_array(call: Call) -> Typed:
    from penstock.sql.rules.types import array

    call.expect(2, 3)
    value = texts(call, count=1)[0]
    mark = call.args[1].value
    if not isinstance(mark, str):
        raise call.refuse("the delimiter must be a literal")
    pattern = text("\\Q" + mark + "\\E")
    pieces = f"split({value}, {pattern})" if mark else f"array({value})"
    empty = f"WHEN {value} = '' THEN CAST(array() AS ARRAY<STRING>)"
    sql = f"CASE {empty} WHEN {value} IS NOT NULL THEN {pieces} END"
    if len(call.args) == 3:
        sql = f"transform({sql}, x_e -> IF(x_e = {texts(call)[2]}, NULL, x_e))"
    return Typed(sql, array(TEXT))

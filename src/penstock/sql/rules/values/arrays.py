"""Arrays."""

from __future__ import annotations

from sqlglot import exp

from penstock.sql.rules.core import Call, Context, Typed, at_least, between, function, once, refuse, rule
from penstock.sql.rules.types import ANY, BOOL, INT4, PARTS, TEXT, Type, array, common
from penstock.sql.rules.values.casts import cast, coerce, unify
from penstock.sql.rules.values.texts import holds_bpchar, plain, shown


@rule(exp.Array)
def _array(context: Context, node: exp.Expr) -> Typed:
    if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
        return of_query(context, node.expressions[0])
    if not node.expressions:
        raise refuse("cannot determine type of empty array", node, sqlstate="42P18")
    values, kind = unify(context.exprs(node.expressions))
    return Typed(f"array({', '.join(value.sql for value in values)})", array(kind))


def of_query(context: Context, node: exp.Expr) -> Typed:
    """``ARRAY(SELECT …)``."""
    inner = node
    while isinstance(inner, exp.Subquery):
        inner = inner.this
    query = context.query(node)
    if query.fields is None or len(query.fields) != 1:
        raise refuse("ARRAY wants a query of one column", node, sqlstate="42601")
    if inner.args.get("order") is not None and not inner.args.get("limit"):
        raise refuse(
            "ARRAY of a sorted query is not supported",
            node,
            hint="Write (SELECT array_agg(x ORDER BY x) FROM …).",
        )
    sql = f"(SELECT array_agg(x) RESPECT NULLS FROM ({query.sql}) AS a(x))"
    return Typed(sql, array(query.fields[0].type))


@rule(exp.Bracket)
def _subscript(context: Context, node: exp.Expr) -> Typed:
    value = context.expr(node.this)
    for index in node.expressions:
        if value.type.name != "array":
            raise refuse("only arrays have subscripts", node, sqlstate="42804")
        if isinstance(index, exp.Slice):
            value = _slice(context, value, index)
            continue
        place = coerce(context.expr(index), INT4)
        # NULL outside of the array, and Spark counts from 0 here.
        value = Typed(f"get({value.sql}, {place.sql} - 1)", value.type.element or ANY)
    return value


def _slice(context: Context, value: Typed, index: exp.Expr) -> Typed:
    low = context.expr(index.this).sql if index.this is not None else "1"
    end = index.args.get("expression")
    high = context.expr(end).sql if end is not None else f"size({value.sql})"
    count = at_least(0, f"({high} - {at_least(1, low)} + 1)")
    return Typed(f"slice({value.sql}, {at_least(1, low)}, {count})", value.type)


def _given(call: Call, place: int = 0) -> Typed:
    value = call.args[place]
    if value.type.name == "unknown":
        return cast(value, array(TEXT))
    if value.type.name != "array":
        raise call.refuse("an array is wanted")
    return value


@function("array_length")
def _length(call: Call) -> Typed:
    call.expect(2)
    value = _given(call)
    if call.args[1].value != 1:
        raise call.refuse("only the first dimension is supported")
    return Typed(once(value, lambda v: f"IF(size({v}) > 0, size({v}), NULL)"), INT4)


@function("array_upper")
def _upper(call: Call) -> Typed:
    return _length(call)


@function("array_lower")
def _lower(call: Call) -> Typed:
    call.expect(2)
    return Typed(f"IF(size({_given(call).sql}) > 0, 1, NULL)", INT4)


@function("cardinality")
def _cardinality(call: Call) -> Typed:
    call.expect(1)
    return Typed(f"size({_given(call).sql})", INT4)


def _pair(
    items: Typed, value: Typed, *, equal: bool = False, swapped: bool = False
) -> tuple[Typed, Typed, Type]:
    """An array and an element of one type; ``equal`` if elements are compared with it.

    ``swapped`` if the element comes first, which may decide on the type.
    """
    element = items.type.element or ANY
    if value.type.name == "unknown":
        value = coerce(value, element)
    kind = common([value.type, element] if swapped else [element, value.type])
    if equal and (kind == PARTS or kind.name in ("json", "jsonb", "bpchar")):
        raise refuse(f"looking for a value of type {kind.name} in an array is not supported")
    return coerce(items, array(kind)), coerce(value, kind), kind


@function("array_append", "array_prepend")
def _append(call: Call) -> Typed:
    call.expect(2)
    first = call.name == "array_append"
    given = _given(call, 0 if first else 1), call.args[1 if first else 0]
    items, value, kind = _pair(*given, swapped=not first)
    one = f"array({value.sql})"
    base = f"coalesce({items.sql}, CAST(array() AS {array(kind).spark}))"
    return Typed(f"concat({base}, {one})" if first else f"concat({one}, {base})", array(kind))


@function("array_cat")
def _cat(call: Call) -> Typed:
    call.expect(2)
    return joined(*call.args)


def joined(left: Typed, right: Typed) -> Typed:
    """``||`` where one side is an array: a NULL array adds nothing."""
    if left.type.name == "array" and right.type.name in ("array", "unknown"):
        right = coerce(right, left.type) if right.type.name == "unknown" else right
    elif left.type.name == "unknown" and right.type.name == "array":
        left = coerce(left, right.type)
    if left.type.name == "array" and right.type.name == "array":
        kind = common([left.type, right.type])
        a, b = coerce(left, kind).sql, coerce(right, kind).sql
        empty = f"CAST(array() AS {kind.spark})"
        return Typed(
            f"IF({a} IS NULL AND {b} IS NULL, NULL, concat(coalesce({a}, {empty}), coalesce({b}, {empty})))",
            kind,
        )
    is_first = left.type.name == "array"
    items, value, kind = _pair(left, right) if is_first else _pair(right, left, swapped=True)
    base, one = f"coalesce({items.sql}, CAST(array() AS {array(kind).spark}))", f"array({value.sql})"
    return Typed(f"concat({base}, {one})" if is_first else f"concat({one}, {base})", array(kind))


@function("array_position")
def _position(call: Call) -> Typed:
    call.expect(2)
    items, value, _ = _pair(_given(call), call.args[1], equal=True)
    found = f"array_position(transform({items.sql}, x_e -> x_e <=> {value.sql}), true)"
    place = once(Typed(found, INT4), lambda v: f"IF({v} > 0, {v}, NULL)")
    return Typed(f"CAST({place} AS INT)", INT4)


@function("array_remove")
def _remove(call: Call) -> Typed:
    call.expect(2)
    items, value, _ = _pair(_given(call), call.args[1], equal=True)
    return Typed(f"filter({items.sql}, x_e -> NOT (x_e <=> {value.sql}))", items.type)


@function("array_replace")
def _replace(call: Call) -> Typed:
    call.expect(3)
    items, new, _ = _pair(_given(call), call.args[2])
    items, old, kind = _pair(items, call.args[1], equal=True)
    new = coerce(new, kind)
    return Typed(f"transform({items.sql}, x_e -> IF(x_e <=> {old.sql}, {new.sql}, x_e))", items.type)


@function("array_to_string")
def _to_string(call: Call) -> Typed:
    call.expect(2, 3)
    items = _given(call)
    texts_ = f"transform({items.sql}, x_e -> {shown(Typed('x_e', items.type.element or ANY))})"
    rest = [coerce(arg, TEXT).sql for arg in call.args[1:]]
    return Typed(f"array_join({', '.join([texts_, *rest])})", TEXT)


@rule(exp.ArrayContainsAll, exp.ArrayContainedBy)
def _contains(context: Context, node: exp.Expr) -> Typed:
    left, right = context.expr(node.this), context.expr(node.args["expression"])
    if isinstance(node, exp.ArrayContainedBy):
        left, right = right, left
    a, b = _both(left, right, node)
    # NULL is contained in nothing.
    test = f"forall({b.sql}, x_e -> coalesce(array_contains({a.sql}, x_e), false))"
    return Typed(f"IF({a.sql} IS NULL, NULL, {test})", BOOL)


@rule(exp.ArrayOverlaps)
def _overlaps(context: Context, node: exp.Expr) -> Typed:
    a, b = _both(context.expr(node.this), context.expr(node.args["expression"]), node)
    return Typed(
        f"coalesce(arrays_overlap({a.sql}, {b.sql}), IF({a.sql} IS NULL OR {b.sql} IS NULL, NULL, false))",
        BOOL,
    )


def _both(left: Typed, right: Typed, node: exp.Expr) -> tuple[Typed, Typed]:
    if left.type.name == "unknown":
        left = coerce(left, right.type)
    if right.type.name == "unknown":
        right = coerce(right, left.type)
    if left.type.name != "array" or right.type.name != "array":
        raise refuse("this operator is supported for arrays only", node)
    kind = common([left.type, right.type])
    a, b = coerce(left, kind), coerce(right, kind)
    return (Typed(plain(a), array(TEXT)), Typed(plain(b), array(TEXT))) if holds_bpchar(kind) else (a, b)


@function("trim_array")
def _trim_array(call: Call) -> Typed:
    call.expect(2)
    items, count = _given(call), coerce(call.args[1], INT4).sql
    fault = "CAST(raise_error('number of elements to trim must be between 0 and that of the array') AS INT)"

    def body(v: str) -> str:
        return f"slice({v}, 1, IF({between(0, count, f'size({v})')}, size({v}) - {count}, {fault}))"

    sql = once(items, lambda v: f"IF({v} IS NULL OR {count} IS NULL, NULL, {body(v)})")
    return Typed(sql, items.type)


@function("array_fill")
def _fill(call: Call) -> Typed:
    raise call.refuse("use array_agg over generate_series")

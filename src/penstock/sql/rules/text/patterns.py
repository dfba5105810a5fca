"""LIKE, SIMILAR TO and regular expressions."""

from __future__ import annotations

import re

from sqlglot import exp

from penstock.sql.rules.core import Call, Context, Typed, function, refuse, rule, text
from penstock.sql.rules.functions import texts
from penstock.sql.rules.queries.membership import elements
from penstock.sql.rules.queries.rowsets import ARRAYS
from penstock.sql.rules.text.regexes import java, like_to_java, similar_to_java
from penstock.sql.rules.types import BOOL, INT4, TEXT, array
from penstock.sql.rules.values.casts import coerce
from penstock.sql.rules.values.operators import quantifier
from penstock.sql.rules.values.texts import plain


@rule(exp.Escape)
def _escape(context: Context, node: exp.Expr) -> Typed:
    mark = context.expr(node.args["expression"]).value
    if not isinstance(mark, str):
        raise refuse("ESCAPE wants a literal", node)
    if len(mark) > 1:
        raise refuse("ESCAPE wants one character", node, sqlstate="22025")
    inner = node.this
    if isinstance(inner, exp.Not):
        return Typed(f"(NOT {_pattern(context, inner.this, mark).sql})", BOOL)
    return _pattern(context, inner, mark)


@rule(exp.Like, exp.ILike, exp.SimilarTo)
def _likes(context: Context, node: exp.Expr) -> Typed:
    return _pattern(context, node, "\\")


def _pattern(context: Context, node: exp.Expr, escape: str) -> Typed:
    value = context.expr(node.this)
    if not (value.type.textual or value.type.name in ("unknown", "any")):
        raise refuse(f"LIKE wants a text, not {value.type.name}", node, sqlstate="42883")
    # With the blanks of a char(n).
    sql = value.sql if value.type.textual else coerce(value, TEXT).sql
    right = quantifier(node.args["expression"])
    fold = isinstance(node, exp.ILike)
    if isinstance(right, exp.Any | exp.All):
        made = _quantified(context, sql, right, escape, fold=fold)
    elif isinstance(node, exp.SimilarTo):
        pattern = context.expr(right).value
        if not isinstance(pattern, str):
            raise refuse("the pattern of SIMILAR TO must be a literal", node)
        made = f"({sql} RLIKE {text(similar_to_java(pattern, escape))})"
    else:
        made = _like(sql, context.expr(right), escape, fold=fold)
    return Typed(f"(NOT {made})" if node.args.get("negate") else made, BOOL)


def _quantified(context: Context, sql: str, right: exp.Expr, escape: str, *, fold: bool) -> str:
    inner: exp.Expr = right.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    word = "AND" if isinstance(right, exp.All) else "OR"
    if isinstance(inner, exp.Array):
        parts = [_like(sql, context.expr(item), escape, fold=fold) for item in inner.expressions]
    else:
        items = elements(context, inner, TEXT)
        if not isinstance(items.value, list):
            test = _like(sql, Typed("x_e", TEXT), escape, fold=fold)
            return f"{'forall' if word == 'AND' else 'exists'}({items.sql}, x_e -> {test})"
        parts = [
            _like(sql, Typed(text(item), TEXT, item), escape, fold=fold)
            for item in items.value
            if item is not None
        ]
    return f"({f' {word} '.join(parts)})" if parts else ("true" if word == "AND" else "false")


def _like(sql: str, pattern: Typed, escape: str, *, fold: bool) -> str:
    word = "ILIKE" if fold else "LIKE"
    if isinstance(pattern.value, str):
        given = _normal(pattern.value, escape)
        if given is None:
            flags = "(?isu)" if fold else "(?s)"
            return f"({sql} RLIKE {text(flags + like_to_java(pattern.value, escape))})"
        return f"({sql} {word} {text(given)})"
    if escape != "\\":
        raise refuse("ESCAPE with a pattern that is no literal is not supported")
    return f"({sql} {word} {plain(coerce(pattern, TEXT))})"


def _normal(pattern: str, escape: str) -> str | None:
    """The pattern with Spark's escapes; Spark allows them only before what needs one."""
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape:
            at += 1
            if at >= len(pattern):
                raise refuse("LIKE pattern must not end with escape character", sqlstate="22025")
            char = pattern[at]
            out.append(f"\\{char}" if char in "%_\\" else char)
        else:
            out.append("\\\\" if char == "\\" else char)
        at += 1
    return "".join(out)


@rule(exp.RegexpLike, exp.RegexpILike)
def _matches(context: Context, node: exp.Expr) -> Typed:
    value = context.expr(node.this)
    if not (value.type.textual or value.type.name in ("unknown", "any")):
        raise refuse(f"~ wants a text, not {value.type.name}", node, sqlstate="42883")
    # With the blanks of a char(n).
    sql = value.sql if value.type.textual else coerce(value, TEXT).sql
    flags = "i" if isinstance(node, exp.RegexpILike) else ""
    right = quantifier(node.args["expression"])
    if isinstance(right, exp.Any | exp.All):
        items = right.this.this if isinstance(right.this, exp.Paren) else right.this
        if not isinstance(items, exp.Array):
            raise refuse("~ ANY wants ARRAY[…] of literals", node)
        word = "AND" if isinstance(right, exp.All) else "OR"
        parts = [
            f"({sql} RLIKE {text(_literal(context.expr(item), flags, node))})" for item in items.expressions
        ]
        return Typed(f"({f' {word} '.join(parts)})", BOOL)
    return Typed(f"({sql} RLIKE {text(_literal(context.expr(right), flags, node))})", BOOL)


def _literal(pattern: Typed, flags: str, node: exp.Expr, *, extent: bool = False) -> str:
    if not isinstance(pattern.value, str):
        raise refuse(
            "a regular expression must be a literal: Spark's flavour differs from PostgreSQL's", node
        )
    return java(pattern.value, flags, extent=extent)


def _flags(call: Call, place: int) -> str:
    if len(call.args) <= place:
        return ""
    flags = call.args[place].value
    if not isinstance(flags, str):
        raise call.refuse("the flags must be a literal")
    return flags


def extract(call: Call, value: str, pattern: Typed) -> str:
    """``substring(value from pattern)``: the first group, or all of the match."""
    given = _literal(pattern, "", call.node, extent=True)
    _certain(call, str(pattern.value))
    found = f"regexp_extract_all({value}, {text(given)}, {1 if groups(str(pattern.value)) else 0})"
    return f"get({found}, 0)"


def _certain(call: Call, pattern: str) -> None:
    """A group that took no part is NULL in PostgreSQL, and an empty text in Spark."""
    bare = re.sub(r"\\.|\[[^]]*\]", "x", pattern)
    if groups(pattern) and (re.search(r"\)([?*]|\{0)", bare) or "|" in re.sub(r"\([^()]*\)", "x", bare)):
        raise call.refuse("a pattern with a group that may take no part is not supported")


def groups(pattern: str) -> int:
    """How many groups a pattern captures."""
    count, at, inside = 0, 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "[" and not inside:
            inside = True
            at += pattern[at + 1 : at + 2] == "^"
            at += pattern[at + 1 : at + 2] == "]"
        elif char == "]":
            inside = False
        elif char == "(" and not inside and pattern[at + 1 : at + 2] != "?":
            count += 1
        at += 1
    return count


@function("regexp_replace")
def _regexp_replace(call: Call) -> Typed:
    call.expect(3, 4)
    value = texts(call, count=1)[0]
    new = call.args[2].value
    if not isinstance(new, str):
        raise call.refuse("the replacement must be a literal")
    flags = _flags(call, 3)
    if flags.strip("gicsn") or flags.isdigit():
        raise call.refuse("only the flags g, i, c, n and s are supported")
    pattern = _literal(call.args[1], flags.replace("g", ""), call.node, extent=True)
    replacement = _replacement(new)
    if "g" in flags:
        return Typed(f"regexp_replace({value}, {text(pattern)}, {text(replacement)})", TEXT)
    # Only the first: what comes before it is captured as the shortest prefix, and put back.
    shifted = _shifted(pattern, new)
    if shifted is None:
        raise call.refuse("a pattern with back references is only supported with the flag g")
    first, again = shifted
    return Typed(f"regexp_replace({value}, {text(first)}, {text(again)})", TEXT)


def _replacement(new: str, shift: int = 0) -> str:
    out, at = [], 0
    while at < len(new):
        char = new[at]
        if char == "\\" and at + 1 < len(new):
            at += 1
            following = new[at]
            if following.isdigit():
                out.append(f"${int(following) + shift}" if following != "0" else "\\\\0")
                # Java reads as many digits as there are groups for: end the number.
                if new[at + 1 : at + 2].isdigit():
                    out.append("\\" + new[at + 1])
                    at += 1
            elif following == "&":
                out.append(f"${shift}")
            else:
                out.append(
                    "\\\\"
                    if following == "\\"
                    else "\\\\\\" + following
                    if following == "$"
                    else "\\\\" + following
                )
        else:
            out.append(f"\\{char}" if char in "\\$" else char)
        at += 1
    return "".join(out)


def _shifted(pattern: str, new: str) -> tuple[str, str] | None:
    """The pattern anchored at the begin, with the prefix in a group, so that it matches once."""
    if any(f"\\{digit}" in pattern for digit in "123456789"):
        return None
    flags, body = "", pattern
    while body.startswith("(?") and body[2:3] in "isuUm":
        flag, _, body = body.partition(")")
        flags += f"{flag})"
    return f"{flags}(?s:\\A(.*?))({body})", f"$1{_replacement(new, 2)}"


@function("regexp_match")
def _regexp_match(call: Call) -> Typed:
    call.expect(2, 3)
    flags = _flags(call, 2)
    if flags.strip("icsn"):
        raise call.refuse("only the flags i, c, n and s are supported")
    return Typed(f"get({_all_matches(call, flags)}, 0)", array(TEXT))


def _all_matches(call: Call, flags: str) -> str:
    value = texts(call, count=1)[0]
    pattern = _literal(call.args[1], flags, call.node, extent=True)
    count = groups(str(call.args[1].value))
    _certain(call, str(call.args[1].value))
    if count <= 1:
        whole = f"regexp_extract_all({value}, {text(pattern)}, {count})"
        return f"transform({whole}, m -> array(m))"
    columns = [f"regexp_extract_all({value}, {text(pattern)}, {i})" for i in range(1, count + 1)]
    named = ", ".join(columns)
    fields = ", ".join(f"z['{i}']" for i in range(count))
    return f"transform(arrays_zip({named}), z -> array({fields}))"


def _regexp_matches(context: Context, args: list[Typed], node: exp.Expr) -> Typed:
    call = Call(context, "regexp_matches", args, node)
    call.expect(2, 3)
    flags = _flags(call, 2)
    if flags.strip("gicsn"):
        raise call.refuse("only the flags g, i, c, n and s are supported")
    found = _all_matches(call, flags.replace("g", ""))
    return Typed(found if "g" in flags else f"slice({found}, 1, 1)", array(array(TEXT)))


def _split(context: Context, args: list[Typed], node: exp.Expr) -> Typed:
    return _regexp_split(Call(context, "regexp_split_to_table", args, node))


ARRAYS["regexp_matches"] = _regexp_matches
ARRAYS["regexp_split_to_table"] = _split


@function("regexp_split_to_array")
def _regexp_split(call: Call) -> Typed:
    call.expect(2, 3)
    pattern = _literal(call.args[1], _flags(call, 2), call.node, extent=True)
    if call.args[1].value == "":
        raise call.refuse("an empty pattern is not supported")
    return Typed(f"split({texts(call, count=1)[0]}, {text(pattern)}, -1)", array(TEXT))


@function("regexp_count")
def _regexp_count(call: Call) -> Typed:
    call.expect(2)
    pattern = _literal(call.args[1], "", call.node, extent=True)
    return Typed(f"regexp_count({texts(call, count=1)[0]}, {text(pattern)})", INT4)


@function("regexp_like")
def _regexp_like(call: Call) -> Typed:
    call.expect(2, 3)
    pattern = _literal(call.args[1], _flags(call, 2), call.node)
    return Typed(f"({texts(call, count=1)[0]} RLIKE {text(pattern)})", BOOL)


@function("regexp_substr")
def _regexp_substr(call: Call) -> Typed:
    call.expect(2)
    pattern = _literal(call.args[1], "", call.node, extent=True)
    return Typed(f"get(regexp_extract_all({texts(call, count=1)[0]}, {text(pattern)}, 0), 0)", TEXT)

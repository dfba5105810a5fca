"""Catalog queries that only PostgreSQL can read.

Clients ask pg_catalog in ways that no other parser follows (``OPERATOR(pg_catalog.~)``, ``XMLTABLE``). They need no
tree: the shadow catalog answers them as they stand. All that must be known is that they read nothing else, and that
can be told from the words alone, if one is strict: every name after FROM, JOIN and the commas of a FROM clause.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dialect.known_names import CATALOG_RELATIONS
from penstock.dialect.lexing import IDENTIFIER, SYMBOL, WORD, Token

_SCHEMAS = frozenset({"pg_catalog", "information_schema"})
_ENDS = frozenset({"where", "group", "having", "order", "limit", "offset", "union", "except", "intersect"})
_ENDS |= frozenset({"window", "fetch", "select", "for", "on", "using"})
_WRITES = frozenset(
    {"insert", "update", "delete", "merge", "into", "copy", "create", "drop", "alter", "call"}
)
_FROM_IN_CALLS = frozenset({"extract", "substring", "trim", "overlay", "position"})


def relations(tokens: Sequence[Token]) -> tuple[tuple[tuple[str, ...], int], ...] | None:
    """The catalog relations with their places; None unless it is sure that there are some, and no others."""
    if tokens[0].kind != WORD or tokens[0].value not in ("select", "with"):
        return None
    ctes = _with_names(tokens)
    found: list[tuple[tuple[str, ...], int]] = []
    clauses: list[str] = []
    """For each open parenthesis what is being read: "from" means that a comma or a start awaits a table."""
    here, previous = "", ""
    number = 0
    while number < len(tokens):
        token = tokens[number]
        word = token.value if token.kind in (WORD, SYMBOL) else ""
        if token.kind == WORD and word in _WRITES and previous != ".":
            return None
        if word == "(":
            clauses.append(here)
            here = "call" if previous in _FROM_IN_CALLS else "table" if here == "table" else ""
        elif word == ")":
            if not clauses:
                return None
            here = clauses.pop()
            here = "from" if here == "table" else here
        elif (word == "from" and here != "call" and previous != "distinct") or word == "join":
            here = "table"
        elif word == "," and here == "from":
            here = "table"
        elif word in _ENDS and token.kind == WORD and here in ("from", "table", ""):
            # ON and USING do not end a FROM clause: a comma after them may bring another table.
            here = "from" if word in ("on", "using") and here == "from" else ""
        elif here == "table" and word not in ("lateral", "only", "rows"):
            if token.kind not in (WORD, IDENTIFIER):
                return None
            path, number = _path(tokens, number)
            here = "from"
            called = number + 1 < len(tokens) and tokens[number + 1].text == "("
            if called and len(path) > 1 and path[0] not in _SCHEMAS:
                return None
            if not called and not (len(path) == 1 and path[0] in ctes):
                if not _is_catalog(path):
                    return None
                found.append((path, token.start))
        previous = tokens[number].value
        number += 1
    return tuple(found) or None


def _is_catalog(path: tuple[str, ...]) -> bool:
    return path[0] in CATALOG_RELATIONS if len(path) == 1 else path[-2] in _SCHEMAS


def _path(tokens: Sequence[Token], number: int) -> tuple[tuple[str, ...], int]:
    parts = [tokens[number].value]
    while number + 2 < len(tokens) and tokens[number + 1].text == ".":
        number += 2
        parts.append(tokens[number].value)
    return tuple(parts), number


def _with_names(tokens: Sequence[Token]) -> frozenset[str]:
    """Names before AS and a parenthesis. A column alias cannot be followed by one, so these are WITH queries."""
    return frozenset(
        token.value
        for token, after, behind in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if token.kind in (WORD, IDENTIFIER) and after.value == "as" and behind.text == "("
    )

"""Catalog queries that only PostgreSQL can read.

Clients ask pg_catalog in ways that no other parser follows (``XMLTABLE``, exotic operators). Such a query
needs no tree: the shadow catalog answers it as it stands. All that must be known is that it reads nothing
else, and that can be told from its words, if one is strict: every name after FROM, JOIN and the commas of
a FROM clause.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sql.parse.known_names import CATALOG_RELATIONS
from penstock.sql.parse.lexing import IDENTIFIER, SYMBOL, WORD, Token

_SCHEMAS = frozenset({"pg_catalog", "information_schema"})
_ENDS = frozenset(
    {
        "where",
        "group",
        "having",
        "order",
        "limit",
        "offset",
        "union",
        "except",
        "intersect",
        "window",
        "fetch",
    }
    | {"select", "for"}
)
_WRITES = frozenset(
    {"insert", "update", "delete", "merge", "into", "copy", "create", "drop", "alter", "call"}
)
_FROM_IN_CALLS = frozenset({"extract", "substring", "trim", "overlay", "position"})
_BEFORE_TABLES = frozenset({"lateral", "only", "rows", "from"})

Found = tuple[tuple[tuple[str, ...], int], ...]


def relations(tokens: Sequence[Token]) -> Found | None:
    """The catalog relations with their places; None unless it is sure that there are some, and no others."""
    if tokens[0].kind != WORD or tokens[0].value not in ("select", "with"):
        return None
    tokens = _without_aliases(tokens)
    if any(token.kind == WORD and token.value in _WRITES for token in tokens):
        return None
    walk = _Walk(tokens)
    return tuple(walk.found) if walk.run() and walk.found else None


def _without_aliases(tokens: Sequence[Token]) -> list[Token]:
    """The tokens without names behind AS, which may be words that mean something elsewhere: ``AS select``.

    A column that is called so (``t.as``) is none of them, nor is an AS that is itself such a name.
    """
    kept: list[Token] = []
    before, names = "", False
    for token in tokens:
        if names and token.kind == WORD and token.value not in ("not", "materialized"):
            names = False
        else:
            names = token.kind == WORD and token.value == "as" and before != "."
            kept.append(token)
        before = token.text
    return kept


class _Walk:
    """``here`` says what is being read: ``table`` where a name of a table must come, ``from`` behind one,
    ``call`` inside of a call in which FROM means something else.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.ctes = _with_names(tokens)
        self.found: list[tuple[tuple[str, ...], int]] = []
        self.outer: list[str] = []
        self.here = ""
        self.number = 0

    def run(self) -> bool:
        """Whether all tables were found, and are the catalog's."""
        previous = ""
        while self.number < len(self.tokens):
            token = self.tokens[self.number]
            word = token.value if token.kind in (WORD, SYMBOL) else ""
            if not self._step(token, word, previous):
                return False
            previous = self.tokens[self.number].value
            self.number += 1
        return not self.outer

    def _step(self, token: Token, word: str, previous: str) -> bool:
        if word == "(":
            self.outer.append(self.here)
            self.here = "call" if previous in _FROM_IN_CALLS else "table" if self.here == "table" else ""
        elif word == ")":
            if not self.outer:
                return False
            self.here = self.outer.pop()
            self.here = "from" if self.here == "table" else self.here
        elif self._awaits_table(word, previous):
            self.here = "table"
        elif token.kind == WORD and word in _ENDS and self.here != "call":
            self.here = ""
        elif self.here == "table" and word not in _BEFORE_TABLES:
            return self._table(token)
        return True

    def _awaits_table(self, word: str, previous: str) -> bool:
        if word == "from":
            # IS DISTINCT FROM is no FROM clause.
            return self.here != "call" and previous != "distinct"
        return word == "join" or (word == "," and self.here == "from")

    def _table(self, token: Token) -> bool:
        if token.kind not in (WORD, IDENTIFIER):
            return False
        path = self._path()
        self.here = "from"
        after = self.number + 1
        if after < len(self.tokens) and self.tokens[after].text == "(":
            return len(path) == 1 or path[0] in _SCHEMAS
        if len(path) == 1 and path[0] in self.ctes:
            return True
        self.found.append((path, token.start))
        return path[0] in CATALOG_RELATIONS if len(path) == 1 else path[-2] in _SCHEMAS

    def _path(self) -> tuple[str, ...]:
        parts = [self.tokens[self.number].value]
        while self.number + 2 < len(self.tokens) and self.tokens[self.number + 1].text == ".":
            self.number += 2
            parts.append(self.tokens[self.number].value)
        return tuple(parts)


def _with_names(tokens: Sequence[Token]) -> frozenset[str]:
    """Names before AS and a parenthesis, maybe with columns between: those of WITH queries, for no alias is
    followed by one.
    """
    found: set[str] = set()
    opened: list[int] = []
    partner: dict[int, int] = {}
    for number, token in enumerate(tokens):
        if token.kind == SYMBOL and token.text == "(":
            opened.append(number)
        elif token.kind == SYMBOL and token.text == ")" and opened:
            partner[number] = opened.pop()
        elif token.kind == WORD and token.value == "as" and number:
            behind = tokens[number + 1 : number + 4]
            named = next((after.text for after in behind if after.value not in ("not", "materialized")), "")
            before = partner.get(number - 1, number) - 1
            if named == "(" and before >= 0 and tokens[before].kind in (WORD, IDENTIFIER):
                found.add(tokens[before].value)
    return frozenset(found)

"""Columns of the catalog that have another name by now: older clients ask for the one they know."""

from __future__ import annotations

from penstock.dialect.lexing import WORD, tokens

_RENAMED = {
    # psql 15 and 16, for \l and \dO
    "daticulocale": "datlocale",
    "colliculocale": "colllocale",
}


def renewed(sql: str) -> str:
    """``sql`` with today's names. Places in it stay the same; texts and quoted names are left alone."""
    if not any(name in sql for name in _RENAMED):
        return sql
    out = sql
    for token in tokens(sql):
        if token.kind == WORD and token.value in _RENAMED:
            name = _RENAMED[token.value].ljust(token.end - token.start)
            out = out[: token.start] + name + out[token.end :]
    return out

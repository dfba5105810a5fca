"""Questions about the catalog, rewritten so that the shadow can answer them.

``pg_prepared_statements`` and ``pg_cursors`` are about the session, of which the shadow's own sessions know
nothing. They become queries of a setting that holds the rows as json, for as long as one statement takes.
Columns that have another name by now get it: older clients ask for the one they know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from penstock.server.shadow.postgres.link import literal
from penstock.sql.parse.known_names import NOT_PLAIN
from penstock.sql.parse.lexing import IDENTIFIER, WORD, Token, tokens

Rows = Mapping[str, Sequence[Mapping[str, object]]]
COLUMNS = {
    "pg_prepared_statements": (
        "name text, statement text, prepare_time timestamptz, parameter_types regtype[],"
        " result_types regtype[], from_sql boolean, generic_plans bigint, custom_plans bigint"
    ),
    "pg_cursors": (
        "name text, statement text, is_holdable boolean, is_binary boolean, is_scrollable boolean,"
        " creation_time timestamptz"
    ),
}
_RENAMED = {
    # psql 15 and 16, for \l and \dO
    "daticulocale": "datlocale",
    "colliculocale": "colllocale",
}


def named(sql: str) -> list[str]:
    """Those that a statement may name."""
    folded = sql.lower()
    return [name for name in COLUMNS if name in folded]


def queried(sql: str) -> str:
    """``sql`` with queries in the place of these tables."""
    if not named(sql):
        return sql
    found = list(tokens(sql))
    out, end = "", 0
    for place, token in enumerate(found):
        if token.kind not in (WORD, IDENTIFIER) or token.value not in COLUMNS:
            continue
        before = found[place - 1] if place else None
        start = token.start
        if before is not None and before.text == ".":
            if place < 2 or found[place - 2].value != "pg_catalog":
                continue
            start = found[place - 2].start
        after = found[place + 1] if place + 1 < len(found) else None
        if after is not None and after.text in (".", "("):
            continue
        alias = "" if _is_alias(after) else f" AS {token.value}"
        out += f"{sql[end:start]}{_query(token.value)}{alias}"
        end = token.end
    return out + sql[end:]


def _is_alias(token: Token | None) -> bool:
    """Whether what follows a table is its alias."""
    if token is None or token.kind not in (WORD, IDENTIFIER):
        return False
    return token.kind == IDENTIFIER or token.value == "as" or token.value not in NOT_PLAIN


def _query(name: str) -> str:
    rows = f"coalesce(nullif(current_setting('penstock.{name}', true), ''), '[]')::json"
    return f"(SELECT * FROM json_to_recordset({rows}) AS r({COLUMNS[name]}))"


def statements(sql: str, rows: Callable[[], Rows]) -> str:
    """What a transaction begins with to have the rows of the session."""
    wanted = named(sql)
    if not wanted:
        return ""
    given = rows()
    return "; ".join(
        f"SET LOCAL penstock.{name} TO {literal(json.dumps(given.get(name, ())))}" for name in wanted
    )


def renewed(sql: str) -> str:
    """``sql`` with today's names of columns. Places in it stay; texts and quoted names are left alone."""
    if not any(name in sql for name in _RENAMED):
        return sql
    out = sql
    for token in tokens(sql):
        if token.kind == WORD and token.value in _RENAMED:
            name = _RENAMED[token.value].ljust(token.end - token.start)
            out = out[: token.start] + name + out[token.end :]
    return out

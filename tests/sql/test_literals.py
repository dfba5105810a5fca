"""Does PostgreSQL read a text as `lexing` does? Made at random of what quotes, escapes and comments are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.errors import SqlError
from penstock.sql.parse.lexing import WORD, plain, tokens
from servers.postgres import Postgres

_OPENINGS = ["'x'", "E'", "'", "U&'", "$a$", "$\u0663$", "/*", "$$", "E'a'\n'", ""]
_CLOSINGS = ["", "'", "'", "$a$", "$$", "$\u0663$", "*/", "' , hidden()", "', '"]
_PIECES = [
    *"'\\\n\r \t\f$*/`\";!ae01#@+-_",
    *("''", "E'", "e'", "U&'", "u&'", "N'", "B'", "X'", "\\'", "\\\\", "--", "/*", "*/", '""', "'x'", "'y'"),
    *(
        "$$",
        "$a$",
        "$a",
        "$1",
        "$\u0663$",
        "$é$",
        "\u0663",
        "é",
        "\u00a0",
        "\u2028",
        "\u0085",
        "\x1c",
        "\x01",
    ),
    *("\\x41", "\\x", "\\xC3", "\\xA9", "\\303\\251", "\\1", "\\8", "\\b", "\\n", "\\t", "\\f", "\\r", "\\e"),
    *("\\0041", "\\+000041", "\\u0041", "\\U00000041", "\\uD83D", "\\ude00", "\\D83D", "\\DE00"),
    *(" UESCAPE '!'", "!0041", "hidden()", ", ", "||", "::text"),
]
_COUNT = 20_000
Row = list[bytes | None]


@pytest.fixture(scope="module")
def postgres() -> Iterator[psycopg.Connection[Any]]:
    with Postgres() as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE FUNCTION hidden() RETURNS text LANGUAGE sql AS $$ SELECT 'HIDDEN' $$")
        yield connection


def _asked(postgres: psycopg.Connection[Any], sql: str) -> Row | None:
    """The first row; nothing if PostgreSQL refuses the text."""
    found = postgres.pgconn.exec_params(sql.encode(), [], [], [], 0)
    if found.status != psycopg.pq.ExecStatus.TUPLES_OK:
        return None
    return [found.get_value(0, column) for column in range(found.nfields)]


def _texts(seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(_COUNT):
        body = "".join(chance.choices(_PIECES, k=chance.randint(1, 9)))
        yield f"SELECT {chance.choice(_OPENINGS)}{body}{chance.choice(_CLOSINGS)}"


def test_postgres_reads_the_same_in_the_plainest_form(postgres: psycopg.Connection[Any]) -> None:
    """And calls no function that is not seen in the tokens."""
    equal, wrong = 0, []
    for sql in _texts(1):
        theirs = _asked(postgres, sql)
        if theirs is None:
            continue
        try:
            seen, plainest = tokens(sql), plain(sql)
        except SqlError:
            continue
        called = b"HIDDEN" in theirs
        if called and not any(token.kind == WORD and token.value == "hidden" for token in seen):
            wrong.append(f"called unseen: {sql!r}")
        elif _asked(postgres, plainest) != theirs:
            wrong.append(f"{sql!r} is not {plainest!r}")
        else:
            equal += 1
    assert not wrong, "\n".join(wrong)
    assert equal > _COUNT / 20

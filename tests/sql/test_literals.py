"""Does PostgreSQL read literals as we do? They are made at random, of what may and may not stand in them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest

from penstock.errors import SqlError
from penstock.sql.parse.lexing import WORD, plain, tokens
from penstock.sql.rules import types
from penstock.sql.rules.core import Typed
from penstock.sql.rules.values.literals import constant
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


_NUMBERS = [
    *"120.-+eE59 \t",
    "00",
    "12345678901234567890",
    "1e5",
    "1e-3",
    "\u00a0",
    "\u0663",
    "x",
    "NaN",
    "inf",
]
_MOMENTS = [
    *"-:.+ TZtz", "2020", "1999", "01", "1", "02", "29", "31", "13", "24", "60", "10:20:30", "24:00",
    "23:59:60", ".5", ".123456", ".9999995", " UTC", "+02", "+02:30", "-05:30", "+16", " +02", " -0530",
    "2020-01-01", "2020-02-29", "2020-1-1", "0001-01-01", "9999-12-31", "\u00a0", "\uff12",
]  # fmt: skip
_WORDS = [
    "t",
    "true",
    "f",
    "false",
    "y",
    "yes",
    "n",
    "no",
    "on",
    "off",
    "1",
    "0",
    " ",
    "TRUE",
    "o",
    "of",
    "\u00a0",
]
_KINDS = [
    (types.INT4, "int4", _NUMBERS, 3),
    (types.NUMERIC, "numeric", _NUMBERS, 4),
    (types.FLOAT8, "float8", _NUMBERS, 4),
    (types.BOOL, "bool", _WORDS, 2),
    (types.DATE, "date", _MOMENTS, 5),
    (types.TIMESTAMP, "timestamp", _MOMENTS, 5),
]


def _shown(value: Typed) -> str:
    """What we take it for, as PostgreSQL writes it."""
    if value.type == types.BOOL:
        return value.sql[0]
    if value.type == types.FLOAT8:
        return repr(float(value.sql.split("'")[1]))
    if value.type == types.DATE and isinstance(value.value, datetime):
        return str(value.value.date())
    shown = str(value.value)
    return shown.rstrip("0") if value.type == types.TIMESTAMP and "." in shown else shown


def _alike(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    try:
        return float(ours) == float(theirs) or theirs == "NaN"
    except ValueError:
        return False


@pytest.mark.parametrize(("kind", "name", "pieces", "most"), _KINDS, ids=[name for _, name, _, _ in _KINDS])
def test_a_literal_has_the_value_that_postgres_gives_it(
    postgres: psycopg.Connection[Any], kind: types.Type, name: str, pieces: list[str], most: int
) -> None:
    chance = random.Random(2)
    equal, wrong = 0, []
    for _ in range(4_000):
        literal = "".join(chance.choices(pieces, k=chance.randint(1, most)))
        try:
            ours = constant(literal, kind)
        except SqlError:
            continue
        assert ours is not None
        theirs = _asked(postgres, f"SELECT $x${literal}$x$::{name}")
        if theirs is None or not _alike(_shown(ours), str((theirs[0] or b"").decode())):
            wrong.append(f"{literal!r} is {_shown(ours)} here, and {theirs} to PostgreSQL")
        else:
            equal += 1
    assert not wrong, "\n".join(wrong)
    assert equal > 20

"""The package psycopg: connections to PostgreSQL, and the pieces that statements are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.core.packages import need
from penstock.errors import InputError, TransientError, UsageError

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composable

Key: TypeAlias = tuple[Any, ...]
"""The values of the key's columns."""

_SETTINGS = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET client_encoding = 'UTF8'; "
    "SET default_transaction_read_only = on"
)
# A client that was stopped, or is gone with its machine, in the middle of an answer holds the lock of its
# table, for which others wait, until the server gives it up. Servers before 12 do not know the setting.
_GIVE_UP_MS = 60_000
_GIVE_UP = "SELECT set_config(name, %s, false) FROM pg_settings WHERE name = 'tcp_user_timeout'"
_DEFAULTS = {"connect_timeout": "10", "tcp_user_timeout": "15000", "application_name": "penstock"}

# libpq gives no code for a refused connection, only a text, which the server may have translated. What is not
# recognised counts as passing: it is tried again, with the text in the error.
REFUSED = re.compile(
    r"authentication failed|no password supplied|does not exist|not permitted to log in|"
    r"no pg_hba\.conf entry|permission denied"
)


def psycopg_package() -> Any:
    need("postgres", "PostgreSQL")
    import psycopg
    import psycopg.conninfo
    import psycopg.sql

    return psycopg


def connect(dsn: str, where: str) -> psycopg.Connection[Any]:
    """A connection that never holds a transaction between two statements, and cannot write."""
    package = psycopg_package()
    try:
        given = package.conninfo.conninfo_to_dict(dsn)
        connection: psycopg.Connection[Any] = package.connect(**{**_DEFAULTS, **given}, autocommit=True)
    except package.OperationalError as error:
        text = str(error)
        if REFUSED.search(text):
            raise InputError(
                f"{where}: {text}", hint="check user, password and database of the connection string"
            ) from None
        raise TransientError(f"{where}: {text}") from None
    connection.execute(_SETTINGS)
    connection.execute(_GIVE_UP, [str(_GIVE_UP_MS)])
    return connection


def place(dsn: str) -> str:
    """Server and database of a connection string, and nothing else of it."""
    package = psycopg_package()
    try:
        found = package.conninfo.conninfo_to_dict(dsn)
    except package.ProgrammingError:
        found = None
    # A password that is not escaped ends up in pieces where host, port or database should be. Neither those
    # nor the text of the error, which repeats them, may be shown.
    if found is None or "@" in f"{found.get('host')}{found.get('dbname')}" or not _is_port(found.get("port")):
        raise UsageError(
            "the connection string is not one of PostgreSQL",
            hint="postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters written as %XX",
        )
    host, port = found.get("host", "localhost"), found.get("port", 5432)
    return f"postgresql://{host}:{port}/{found.get('dbname', '')}"


def _is_port(port: object) -> bool:
    return port is None or re.fullmatch(r"[0-9,]*", str(port)) is not None


def relation(name: str) -> Composable:
    identifier: Composable = psycopg_package().sql.Identifier(*name.split("."))
    return identifier


def columns(key: Sequence[str]) -> Composable:
    sql = psycopg_package().sql
    listed: Composable = sql.SQL(", ").join(map(sql.Identifier, key))
    return listed


def descending(key: Sequence[str]) -> Composable:
    sql = psycopg_package().sql
    listed: Composable = sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(each)) for each in key)
    return listed


def key_tuple(key: Sequence[str]) -> Composable:
    tupled: Composable = psycopg_package().sql.SQL("({})").format(columns(key))
    return tupled


def key_values(key: Key) -> Composable:
    sql = psycopg_package().sql
    listed: Composable = sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key)))
    return listed


def beyond(key: Sequence[str], after: Key | None) -> Composable:
    """The condition for rows whose key is greater; all are where there is none."""
    sql = psycopg_package().sql
    if after is None:
        everything: Composable = sql.SQL("true")
        return everything
    greater: Composable = sql.SQL("{} > {}").format(key_tuple(key), key_values(after))
    return greater

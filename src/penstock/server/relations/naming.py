"""Names of tables: what may be one, how Spark and people see them, and which one was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from penstock.errors import SqlError
from penstock.server.base import DATABASE, PUBLIC
from penstock.server.relations.relation import Key

SYSTEM_SCHEMAS = frozenset({"pg_catalog", "information_schema", "sys"})
LONGEST = 63
"""PostgreSQL cuts longer names off, which its clients know; here they are refused."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def split(path: Sequence[str]) -> tuple[str | None, str]:
    """Schema, if one was written, and name."""
    if len(path) == 3:
        if path[0] != DATABASE:
            raise SqlError(
                f'cross-database references are not implemented: "{".".join(path)}"',
                hint=f"there is one database: {DATABASE}",
                sqlstate="0A000",
            )
        path = path[1:]
    if not 1 <= len(path) <= 2:
        raise SqlError(f"improper relation name (too many dotted names): {'.'.join(path)}", sqlstate="42601")
    return (path[0], path[1]) if len(path) == 2 else (None, path[0])


def effective(search_path: Sequence[str], user: str) -> list[str]:
    """The schemas of a search path in order; ``$user`` is the user's own."""
    return [user if name == "$user" else name for name in search_path] or [PUBLIC]


def check_new(name: str) -> str:
    """The name, if something can be made under it."""
    if len(name.encode()) > LONGEST:
        raise SqlError(
            f'identifier "{name}" is too long', hint=f"use at most {LONGEST} bytes", sqlstate="42622"
        )
    if not _NAME.fullmatch(name) or not name.strip("_"):
        raise SqlError(
            f'"{name}" cannot be the name of a table, view or schema',
            hint="use ASCII letters, digits, '_' and '-', beginning with a letter, digit or '_'",
            sqlstate="42602",
        )
    return name


def is_system(schema: str) -> bool:
    return schema in SYSTEM_SCHEMAS or schema.startswith("pg_")


def backquoted(name: str) -> str:
    """A name as Spark SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def shown(key: Key) -> str:
    """A table as a message names it: without its schema where that is the usual one."""
    return key[1] if key[0] == PUBLIC else f"{key[0]}.{key[1]}"


def unknown(path: Sequence[str], known: Iterable[Key]) -> SqlError:
    """The error for a relation that does not exist, with the one that was probably meant."""
    return SqlError(f'relation "{".".join(path)}" does not exist', hint=_meant(path, known), sqlstate="42P01")


def _meant(path: Sequence[str], known: Iterable[Key]) -> str | None:
    names = list(known)
    wanted = ".".join(path[-2:]).lower()
    same = [key for key in names if key[1].lower() == path[-1].lower()]
    if same:
        return f"did you mean {quoted(same[0])}?"
    spelled: dict[str, Key] = {}
    for key in names:
        spelled.setdefault(f"{key[0]}.{key[1]}".lower(), key)
        if len(path) == 1:
            spelled.setdefault(key[1].lower(), key)
    near = difflib.get_close_matches(wanted, spelled, n=1)
    return f"did you mean {quoted(spelled[near[0]])}?" if near else None


def quoted(key: Key) -> str:
    """A table as PostgreSQL's SQL names it, with quotes where it needs them."""
    return ".".join(map(identifier, key[1:] if key[0] == PUBLIC else key))


def identifier(name: str) -> str:
    """A name as PostgreSQL's SQL writes it, with quotes where it needs them."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'

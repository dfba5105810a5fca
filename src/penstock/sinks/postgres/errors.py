"""Connections to PostgreSQL, and what it says as errors of ours: by its codes, and without passwords.

A process that is stopped, or whose machine vanishes, must not hold its locks for ever. So nobody waits for a
lock without an end, and the server ends a transaction in which nothing happens any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.config import is_secret, shown_url
from penstock.errors import (
    PenstockError,
    StorageFull,
    StreamError,
    TransientError,
    UsageError,
)
from penstock.sources.postgres.client import REFUSED

if TYPE_CHECKING:
    import psycopg

_WAIT_SECONDS = 10
LOCK_SECONDS = 30
"""How long a statement waits for a lock before the whole transaction is given up."""
IDLE_SECONDS = 30
"""How long the server bears with a client that says nothing in the middle of a transaction."""
# A server that vanished is noticed, also while it has nothing to say.
_DEFAULTS = {
    "connect_timeout": str(_WAIT_SECONDS),
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# Within the transaction: through a pooler, the next one on this connection may be somebody else's.
_LIMITS = (
    "SELECT set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true)"
)
_FULL = "53100"
_NO_RIGHT = "42501"
# Classes: connection, state of the transaction (one that idled, a standby), conflict, resources, locks,
# operator intervention, the server's system, internal.
_PASSING = ("08", "25", "40", "53", "55", "57", "58", "XX")
# Classes: who may log in, which database there is.
_REFUSING = ("28", "3D")
_IN_COPY = re.compile(r"COPY [^,\n]*, line (?P<line>\d+)(?:, column (?P<column>[^:\n]+))?")


@contextmanager
def connected(
    url: str, name: str = "penstock", *, lock_seconds: float | None = None
) -> Iterator[psycopg.Connection]:
    """A connection; its transaction is committed when the block ends, and rolled back on an error.

    ``name`` is what the server shows it as. What PostgreSQL refuses inside is raised as a `PenstockError`.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        given = {**_DEFAULTS, **conninfo_to_dict(url), "client_encoding": "UTF8", "application_name": name}
        with psycopg.connect(make_conninfo("", **given)) as connection:
            wait = LOCK_SECONDS if lock_seconds is None else lock_seconds
            connection.execute(_LIMITS, [f"{wait * 1000:.0f}", f"{IDLE_SECONDS * 1000:.0f}"])
            yield connection
    except psycopg.Error as error:
        # Its own text may have the password in it, and would be shown as the cause.
        raise _translated(error, url) from None


def _translated(error: psycopg.Error, url: str) -> PenstockError:
    import psycopg

    code = error.sqlstate or ""
    what = f"PostgreSQL at {shown_url(url)}: {_without_secrets(_words(error), url)}"
    if code == _FULL:
        return StorageFull(what, left="nothing of the batch", hint="free some space on the server")
    if code == _NO_RIGHT:
        return UsageError(what, left="nothing of the batch", hint="grant the user what is missing")
    if code[:2] in _REFUSING or (not code and REFUSED.search(str(error))):
        return UsageError(what, left="nothing of the batch", hint="mend user, password or database")
    if not code and isinstance(error, psycopg.ProgrammingError):
        return UsageError(what, hint="mend the URL")
    if not code and isinstance(error, psycopg.DataError):
        # Refused by the client, before the server saw it.
        return StreamError(what, left="nothing of the batch", hint="make rows and table fit each other")
    if not code or code[:2] in _PASSING:
        return TransientError(what, left="the whole batch or nothing of it; it comes again")
    return StreamError(
        f"{what}{_place(error)}",
        left="nothing of the batch",
        hint="make rows and table fit each other: change the table, or what comes before the output",
    )


def _place(error: psycopg.Error) -> str:
    """The column and the row that were refused, as far as the server tells; never the value."""
    found = _IN_COPY.search(error.diag.context or "")
    column = error.diag.column_name or (found["column"] if found else None)
    row = f"row {found['line']} of its task" if found else ""
    return "".join(f", {each}" for each in (f"column {column}" if column else "", row) if each)


def _words(error: psycopg.Error) -> str:
    """The message in one line, without the details, which show rows."""
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__


def _without_secrets(text: str, url: str) -> str:
    parts = urlsplit(url)
    secrets = {value for name, value in parse_qsl(parts.query) if is_secret(name)}
    if parts.password:
        secrets |= {parts.password, unquote(parts.password)}
    for secret in secrets:
        text = text.replace(secret, "***")
    return text

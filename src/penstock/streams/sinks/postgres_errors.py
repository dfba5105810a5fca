"""What PostgreSQL says, as errors of ours: by its codes, never by its words, and without passwords."""

from __future__ import annotations

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

if TYPE_CHECKING:
    import psycopg

_WAIT_SECONDS = 10
_FULL = "53100"
_NO_RIGHT = "42501"
# Classes: connection, conflict, resources, locks, operator intervention, the server's system, internal.
_PASSING = ("08", "40", "53", "55", "57", "58", "XX")


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection]:
    """A connection; its transaction is committed when the block ends, and rolled back on an error.

    What PostgreSQL refuses inside is raised as a `PenstockError`.
    """
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=_WAIT_SECONDS, client_encoding="UTF8") as connection:
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
    if not code and isinstance(error, psycopg.ProgrammingError):
        return UsageError(what, hint="mend the URL")
    if not code or code[:2] in _PASSING:
        return TransientError(what, left="the whole batch or nothing of it; it comes again")
    return StreamError(what, left="nothing of the batch", hint="make rows and table fit each other")


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

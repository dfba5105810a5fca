"""The coordination store and its backends. `open_store` turns a URL into one."""

from __future__ import annotations

from penstock.errors import UsageError
from penstock.store.base import Change, Changes, Document, Session, Store, Write

__all__ = ["Change", "Changes", "Document", "Session", "Store", "Write", "open_store"]

_FORMS = "sqlite:///relative/path.db or sqlite:////absolute/path.db"


def open_store(url: str) -> Store:
    """The store that ``url`` names; it is created if it does not exist.

    ``sqlite:///path`` is relative to the working directory, ``sqlite:////path`` is absolute.
    """
    scheme, separator, rest = url.partition("://")
    if scheme != "sqlite" or not separator:
        raise UsageError(f"{url!r} is not the URL of a store that Penstock knows", hint=f"write {_FORMS}")
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or path.endswith("/") or path == ":memory:":
        raise UsageError(f"{url!r} does not name a file", hint=f"write {_FORMS}")
    from penstock.store.sqlite import SqliteStore

    return SqliteStore(path)

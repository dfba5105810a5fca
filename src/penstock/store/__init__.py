"""The coordination store and its backends. `open_store` turns a URL into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config import shown_url
from penstock.core.plugins import STORES, find, plugins
from penstock.errors import UsageError
from penstock.store.base import Change, Changes, Document, Session, Store, Write

if TYPE_CHECKING:
    from penstock.config.tls import Tls

__all__ = ["Change", "Changes", "Document", "Session", "Store", "Write", "open_store"]

_FORMS = (
    "sqlite:///relative/path.db, sqlite:////absolute/path.db, etcd://host1,host2,host3/prefix, "
    "s3://bucket/prefix (also gs:// and az://) or file:///absolute/folder"
)
_OBJECTS = ("s3", "gs", "az", "file")


def open_store(url: str, *, tls: Tls | None = None, password: str | None = None) -> Store:
    """The store that ``url`` names; it is created if it does not exist.

    ``sqlite:///path`` is relative to the working directory, ``sqlite:////path`` is absolute. ``tls`` and
    ``password`` are for etcd; a password in the URL comes second. Other schemes come from packages that bring
    an entry point for them (`penstock.core.plugins`).
    """
    scheme, separator, rest = url.partition("://")
    if scheme == "sqlite" and separator:
        return _sqlite(url, rest)
    if scheme == "etcd" and separator:
        from penstock.store.etcd import EtcdStore

        return EtcdStore.open(url, tls=tls, password=password)
    if scheme in _OBJECTS and separator:
        from penstock.store.objects import ObjectStore

        return ObjectStore(url)
    if separator and (plugin := find(STORES, scheme)):
        opened = plugin.load()(url, tls=tls, password=password)
        if not isinstance(opened, Store):
            raise UsageError(
                f"the store {scheme} of {plugin.package} opens {type(opened).__name__}, no store"
            )
        return opened
    raise UsageError(
        f"{shown_url(url)!r} is not the URL of a store that Penstock knows", hint=f"write {_FORMS}{_others()}"
    )


def _others() -> str:
    schemes = [f"{plugin.name}://" for plugin in plugins(STORES)]
    return f"; installed packages bring {', '.join(schemes)}" if schemes else ""


def _sqlite(url: str, rest: str) -> Store:
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or path.endswith("/") or path == ":memory:":
        raise UsageError(f"{url!r} does not name a file", hint=f"write {_FORMS}")
    from penstock.store.sqlite import SqliteStore

    return SqliteStore(path)

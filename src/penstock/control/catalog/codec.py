"""The head of the catalog as bytes: JSON, with a list per entry and per change."""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.control.catalog.model import CatalogEntry, Head, Logged, StatementKind, check_name
from penstock.errors import CatalogError, CorruptFile, UsageError
from penstock.store.backends import MAX_DOCUMENT

FORMAT = 1

_DIGEST = re.compile(r"[0-9a-f]{64}")


def encode(head: Head) -> bytes:
    """The inverse of `decode`. Raises `UsageError` when there are too many statements for one document."""
    value = {
        "format": FORMAT,
        "version": head.version,
        "statements": [[e.name, e.kind, e.digest, e.needs, e.created] for e in head.entries],
        "history": [[c.version, c.what, c.by, c.when, c.request] for c in head.history],
    }
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    if len(data) > MAX_DOCUMENT:
        raise UsageError(
            f"the catalog has no room for more: {len(head.entries):,} statements would take {len(data):,} "
            f"bytes to list, of {MAX_DOCUMENT:,} at most",
            left="the catalog is as it was",
            hint="drop what is no longer used, or give this project a store of its own",
        )
    return data


def decode(data: bytes) -> Head:
    """The head that was encoded.

    Raises `CorruptFile` for anything else, and `CatalogError` for one that a newer version of Penstock wrote.
    """
    try:
        value = json.loads(data)
        _check_format(value["format"])
        entries = tuple(_entry(*row) for row in value["statements"])
        history = tuple(_logged(*row) for row in value["history"])
        _check_order(entries)
        return Head(_number(value["version"]), entries, history)
    except (ValueError, LookupError, TypeError, UsageError, RecursionError) as error:
        raise CorruptFile(
            f"the head of the catalog, document catalog/head of the store, cannot be read: {error}",
            left="the texts of its statements are still in the store, under catalog/ddl/",
            hint="restore the store from a copy",
        ) from error


def _check_format(found: Any) -> None:
    if _number(found) > FORMAT:
        raise CatalogError(
            f"the catalog has format {found}, and this version of Penstock knows {FORMAT}",
            left="the catalog is as it was",
            hint="upgrade Penstock: a newer version has changed this catalog",
        )
    if found != FORMAT:
        raise ValueError(f"it has format {found}")


def _entry(name: Any, kind: Any, digest: Any, needs: Any, created: Any) -> CatalogEntry:
    check_name(_text(name))
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is no digest")
    return CatalogEntry(name, StatementKind(kind), digest, tuple(map(_text, needs)), _text(created))


def _logged(version: Any, what: Any, by: Any, when: Any, request: Any) -> Logged:
    return Logged(_number(version), _text(what), _text(by), _text(when), _text(request))


def _check_order(entries: tuple[CatalogEntry, ...]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen or not seen.issuperset(entry.needs):
            raise ValueError(f"{entry.name} stands there twice, or before something that it needs")
        seen.add(entry.name)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no version")
    return value

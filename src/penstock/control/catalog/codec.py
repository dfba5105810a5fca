"""The head of the catalog as a document, with a list per entry and per change."""

from __future__ import annotations

import re

from penstock.control.catalog.model import CatalogEntry, Head, Logged, check_name
from penstock.core.codec import READABLE, DocumentFormat, Members, from_rows, to_rows
from penstock.errors import CatalogError, UsageError
from penstock.store.backends import MAX_DOCUMENT

_DIGEST = re.compile(r"[0-9a-f]{64}")


def _short(found: Members) -> Members:
    entries, history = to_rows(found["entries"]), to_rows(found["history"])
    return {"version": found["version"], "statements": entries, "history": history}


def _long(found: Members) -> Members:
    entries, history = from_rows(CatalogEntry, found["statements"]), from_rows(Logged, found["history"])
    return {"version": found["version"], "entries": entries, "history": history}


HEAD = DocumentFormat(
    Head,
    "the head of the catalog",
    text=READABLE,
    pack=_short,
    unpack=_long,
    left="the texts of its statements are still in the store, under catalog/ddl/",
    hint="restore the store from a copy",
    refusal=CatalogError,
)


def encode(head: Head) -> bytes:
    """The inverse of `decode`. Raises `UsageError` when there are too many statements for one document."""
    data = HEAD.encode(head)
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
    return HEAD.read("catalog/head", data, _checked)


def _checked(head: Head) -> Head:
    if any(version < 0 for version in (head.version, *(each.version for each in head.history))):
        raise ValueError("it has a version below 0")
    seen: set[str] = set()
    for entry in head.entries:
        check_name(entry.name)
        if not _DIGEST.fullmatch(entry.digest):
            raise ValueError(f"{entry.digest!r} is no digest")
        if entry.name in seen or not seen.issuperset(entry.needs):
            raise ValueError(f"{entry.name} stands there twice, or before something that it needs")
        seen.add(entry.name)
    return head

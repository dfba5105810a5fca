"""What tests of the catalog share."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.control.catalog import Create, Head, Statement, StatementKind
from penstock.control.catalog.model import ChangeStamp
from penstock.control.catalog.rules import CatalogChange, apply
from penstock.store.base import Store


def statement(name: str, *needs: str, kind: StatementKind = StatementKind.VIEW, sql: str = "") -> Statement:
    return Statement(name, kind, sql or f"CREATE {kind.upper()} {name}", needs)


def create(
    name: str, *needs: str, kind: StatementKind = StatementKind.VIEW, sql: str = "", replace: bool = False
) -> Create:
    return Create(statement(name, *needs, kind=kind, sql=sql), replace)


def after(*changes: CatalogChange, begin: Head | None = None) -> Head:
    """What these changes make of the empty catalog, or of ``begin``."""
    head = begin or Head()
    for change in changes:
        head = apply(head, change, ChangeStamp(f"r{head.version}", "ana@host", "2026-01-05T10:00:00Z"))
    return head


def names(head: Head) -> list[str]:
    return [entry.name for entry in head.entries]


def texts(store: Store) -> set[str]:
    """The digests of all texts in a store."""
    return {document.key.rpartition("/")[2] for document in store.scan("catalog/ddl/")}


def digests(head: Head) -> set[str]:
    return {entry.digest for entry in head.entries}


def is_valid(things: Iterable[Statement]) -> bool:
    """Whether each stands after what it needs, and no two have the same name."""
    seen: set[str] = set()
    for thing in things:
        if thing.name in seen or not seen.issuperset(thing.needs):
            return False
        seen.add(thing.name)
    return True

"""The catalog in a store: read as a whole, and changed by compare-and-set on its head."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from penstock.control.catalog import texts
from penstock.control.catalog.codec import decode, encode
from penstock.control.catalog.model import (
    CatalogEntry,
    ChangeStamp,
    Head,
    Logged,
    Manifest,
    Statement,
    digest_of,
    named,
)
from penstock.control.catalog.rules import CatalogChange, Create, apply, conflict, remembers
from penstock.core.clocks import wall_clock
from penstock.errors import CatalogConflict, CorruptFile, StoreUnavailable
from penstock.store.base import Store

HEAD = "catalog/head"

_TRIES = 6


class Catalog:
    """The ordered DDL of everything. Safe for many threads and processes; nobody's change is overwritten."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._texts: Mapping[str, str] = {}

    def head(self) -> Head:
        """The newest version without texts: one read, whatever the number of statements."""
        return self._head()[0]

    def read(self) -> Manifest:
        """The newest version with all texts. Those that were read before are not read again."""
        manifest = self._read(lambda head: head.entries)
        self._texts = {digest_of(statement.sql): statement.sql for statement in manifest.statements}
        return manifest

    def find(self, name: str) -> Statement | None:
        """The newest statement of this name, if there is one."""
        found = self._read(lambda head: [entry for entry in head.entries if entry.name == name])
        return found.statements[0] if found.statements else None

    def change(
        self, change: CatalogChange, *, expected: int | None = None, by: str = "", request: str = ""
    ) -> Logged:
        """Make a change; it is returned as history tells it, with the version that it led to.

        With ``expected`` it is made to that version or not at all: any other raises `CatalogConflict`.
        Without, it is made to the newest version, whichever that is: after a lost race the rules judge it
        again, and may refuse it. ``by`` tells people who did it.

        A write whose answer was lost is looked for before it is made again. If the store does not answer
        for a while, `StoreUnavailable` says what is known. Asked again with the same ``request``, an id
        that the caller has chosen, it is still made once, as far as the history goes back.
        """
        stamp = ChangeStamp(request or secrets.token_hex(8), by, wall_clock("seconds"))
        unanswered: list[int] = []
        failures = 0
        while True:
            try:
                done = self._try(change, expected, stamp, unanswered)
            except StoreUnavailable as error:
                failures += 1
                if failures == _TRIES:
                    raise _unavailable(error, unanswered) from error
            else:
                if done is not None:
                    return done
            time.sleep(random.uniform(0.5, 1) * 0.01 * 2**failures)

    def _try(
        self, change: CatalogChange, expected: int | None, stamp: ChangeStamp, unanswered: list[int]
    ) -> Logged | None:
        """The change as it was made, now or before; None when somebody else was faster.

        ``unanswered`` collects the versions that a write was made to without an answer.
        """
        head, version = self._head()
        if logged := head.made(stamp.request):
            return logged
        if unanswered and not remembers(head, unanswered[0]):
            raise _untold(head)
        if expected is not None and head.version != expected:
            raise conflict(head, expected)
        after = apply(head, change, stamp)
        data = encode(after)
        seen = texts.some(self._store)
        if isinstance(change, Create):
            texts.put(self._store, change.statement.sql)
        unanswered.append(head.version)
        written = self._store.cas(HEAD, version, data)
        unanswered.pop()
        if written is None:
            return None
        texts.sweep(self._store, seen, {entry.digest for entry in after.entries})
        return after.made(stamp.request)

    def _read(self, choose: Callable[[Head], Sequence[CatalogEntry]]) -> Manifest:
        """The newest version of chosen statements."""
        head, found = self.head(), dict(self._texts)
        while True:
            wanted = {entry.digest for entry in choose(head)}
            found |= texts.fetch(self._store, sorted(wanted - found.keys()))
            if found.keys() >= wanted:
                return Manifest(head.version, tuple(_statement(e, found[e.digest]) for e in choose(head)))
            # A text may be gone because the head that referred to it is; otherwise it is lost.
            newest = self.head()
            if newest.version == head.version:
                raise _incomplete([entry for entry in choose(head) if entry.digest not in found])
            head = newest

    def _head(self) -> tuple[Head, int]:
        """The head, and the version of its document, 0 when there is none."""
        document = self._store.get(HEAD)
        return (decode(document.value), document.version) if document else (Head(), 0)


def _statement(entry: CatalogEntry, sql: str) -> Statement:
    return Statement(entry.name, entry.kind, sql, entry.needs, entry.created)


def _incomplete(lost: Sequence[CatalogEntry]) -> CorruptFile:
    return CorruptFile(
        f"the store has lost the text of {named(f'{entry.kind} {entry.name}' for entry in lost)}",
        left="the other statements can be read",
        hint="restore the store from a copy, or add what is lost again with --replace",
    )


def _unavailable(error: StoreUnavailable, unanswered: list[int]) -> StoreUnavailable:
    if not unanswered:
        return StoreUnavailable(error.what, left="the catalog was not changed", hint=error.hint)
    return StoreUnavailable(
        error.what,
        left="it is not known whether the change was made",
        hint="once the store answers, `penstock catalog history` shows whether it was",
    )


def _untold(head: Head) -> CatalogConflict:
    return CatalogConflict(
        f"the answer to the change was lost, and so much happened since that version {head.version} of the "
        "catalog does not tell whether it was made",
        left="either it was made or nothing was changed",
        hint="look at `penstock catalog show`, and make it again if it is not there",
    )

"""A folder or object-store URL that holds journals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

from penstock.errors import BadInput
from penstock.journals.format import names
from penstock.journals.format.fragments import Fragment, head, parse
from penstock.journals.reader import listing
from penstock.storage import Storage

if TYPE_CHECKING:
    from penstock.journals.reader.reading import JournalReader


@dataclass(frozen=True, slots=True)
class Summary:
    """A journal at a glance: ``bytes`` is what its files take, ``written`` seconds since 1970."""

    journal: str
    fragments: int
    bytes: int
    begin: int
    head: int
    written: float | None


class Survey:
    """The fragments of some journals of an object store, found by one listing of all that begin alike.

    ``wanted`` says from which offset on each journal is read: what ends before is not kept, but for the last.
    """

    def __init__(self, storage: Storage, prefix: str, wanted: Mapping[str, int]) -> None:
        self._storage = storage
        self._files: dict[str, list[listing.File]] = {journal: [] for journal in wanted}
        self.objects = 0
        """How many there were in all."""
        for file in listing.objects(storage, prefix):
            self.objects += 1
            if file.journal in wanted and (end := _end(file)) is not None:
                self._add(self._files[file.journal], file, end, wanted[file.journal])

    def _add(self, known: list[listing.File], file: listing.File, end: float, offset: int) -> None:
        # Without the last one, a journal that lost its end would look like one that is not there.
        if known and (_end(known[0]) or 0) < offset:
            if end < (_end(known[0]) or 0):
                return
            known.pop(0)
        if not known or end >= offset:
            known.append(file)

    def fragments(self, journal: str) -> tuple[Fragment, ...]:
        """Those of a journal, sorted."""
        found = (listing.as_fragment(self._storage, file) for file in self._files[journal])
        return tuple(sorted(fragment for fragment in found if fragment is not None))


class Journals:
    """All journals below a root. It holds nothing but the root, so that it can travel to executors."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.storage = Storage(root)

    def __repr__(self) -> str:
        return f"Journals({self.storage.root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Journals) and other.storage == self.storage

    def __hash__(self) -> int:
        return hash(self.storage)

    @property
    def root(self) -> str:
        return self.storage.root

    def is_at(self, other: Journals) -> bool:
        """Whether both roots are the same, however they are spelled."""
        return self.storage == other.storage or _place(self.root) == _place(other.root)

    def name_below(self, other: Journals, journal: str) -> str | None:
        """What ``journal`` of this root is called below another one; None if it does not lie there."""
        if other.storage == self.storage:
            return journal
        here, there = _place(self.root), _place(other.root)
        if here.startswith(f"{there}/"):
            return f"{here[len(there) + 1 :]}/{journal}"
        path = f"{here}/{journal}"
        return path[len(there) + 1 :] if path.startswith(f"{there}/") else None

    def list(self, prefix: str = "") -> list[str]:
        """The names of all journals that begin with ``prefix``, sorted.

        A journal is a folder with a fragment or a spool in it. Folders below one whose name ends with a
        pivot belong to that journal. Raises `BadInput` for a folder with fragments that cannot be a journal.
        """
        return listing.journal_names(self.storage, prefix)

    def summaries(self, prefix: str = "") -> tuple[Summary, ...]:
        """All journals that begin with ``prefix``, at a glance, with one listing of an object store."""
        found = listing.everything(self.storage, prefix).items()
        return tuple(summary for name, files in found if (summary := self._summary(name, files)))

    def fragments(self, journal: str) -> tuple[Fragment, ...]:
        """The fragments of a journal, sorted; none if there is no such journal."""
        return tuple(fragment for fragment in self.everything(journal) if not fragment.is_spool)

    def everything(self, journal: str) -> tuple[Fragment, ...]:
        """The fragments of a journal and its spool, sorted; none if there is no such journal."""
        return tuple(listing.fragments(self.storage, names.check(journal)))

    def survey(self, wanted: Mapping[str, int], prefix: str = "") -> Survey | None:
        """Where to look for the fragments of many journals; None where each is quickly found alone."""
        return Survey(self.storage, prefix, wanted) if self.storage.local is None else None

    def begin(self, journal: str) -> int | None:
        """The first offset that is still there; None if there is no such journal."""
        return min((fragment.begin for fragment in self.everything(journal)), default=None)

    def head(self, journal: str) -> int | None:
        """The write head: the end of what can be read. None if there is no such journal."""
        return head(self.everything(journal))

    def reader(self, journal: str, offset: int = 0) -> JournalReader:
        """Reads a journal from an offset on, which must be the begin of a line."""
        from penstock.journals.reader.reading import JournalReader

        return JournalReader(self, journal, offset)

    def _summary(self, journal: str, files: Iterable[listing.File]) -> Summary | None:
        found = []
        for file in files:
            try:
                found.append(listing.as_fragment(self.storage, file))
            except BadInput:
                continue  # reading and verifying tell of it
        known = [fragment for fragment in found if fragment is not None]
        if not known:
            return None
        return Summary(
            journal,
            sum(not fragment.is_spool for fragment in known),
            sum(fragment.size or 0 for fragment in known),
            min(fragment.begin for fragment in known),
            max(fragment.end for fragment in known),
            max((fragment.modified for fragment in known if fragment.modified), default=None),
        )


@lru_cache(maxsize=1 << 8)
def _place(root: str) -> str:
    """Where a root is, however it is spelled. Behind the question mark of an URL stands how to get there."""
    return root.partition("?")[0].rstrip("/") if "://" in root else os.path.realpath(root)


def _end(file: listing.File) -> float | None:
    """Where a fragment ends; None for what is none, and must not be.

    A name that cannot be read must be told of when the journal is, wherever that is.
    """
    try:
        fragment = parse(file.path, size=file.size)
    except BadInput:
        return inf
    return None if fragment is None else fragment.end

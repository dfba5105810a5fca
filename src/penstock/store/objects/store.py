"""A store that needs nothing but a bucket or a directory.

A document is a folder of versions, and its newest version is what it is. `cas` lists the folder, compares,
and creates the next number, which only one writer can. A deletion is a version without a value, so numbers go
on.

Old versions are removed by those who write. That needs care: a writer that listed the folder, slept, and then
creates the next number must not succeed because that number was used and removed in the meantime.

- A version is removed only when the one after it was written at least 60 s before the newest one, by the
  bucket's own times. Who wrote the one after it had seen the version; so everybody who has not seen it listed
  the folder more than 60 s before it can be gone.
- A writer that needed more than 30 s from its listing to the end of its write, by its own clock, looks again.
  If its version is the newest, the number was free, for the newest is never removed. Otherwise the version
  after it tells, by naming the write that it follows.

A writer that died in between leaves a version that is not the newest: nobody sees it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from penstock.errors import PenstockError, StoreUnavailable
from penstock.store import clock
from penstock.store.base import Change, Changes, Document, Session, Store, Write
from penstock.store.forks import survive_forks
from penstock.store.keys import check_ttl, check_writes
from penstock.store.objects.names import folder_above, folder_of, key_of
from penstock.store.objects.sessions import Sessions
from penstock.store.objects.table import Head, Seen, Table
from penstock.store.objects.versions import Record, Version, Versions

# The newest ones stay however old they seem: the bucket's clock may be set.
_KEEP = 8
_KEEP_SECONDS = 60.0
_TRUSTED_SECONDS = 30.0
# Pruning takes a listing and a removal: at every so many versions, and not again for a while.
_PRUNE_EVERY = 8
_PRUNE_PAUSE = 30.0
_TRIES = 5
_WATCH_LIMIT = 1000
_FIRST_POLL, _LAST_POLL = 0.05, 0.5


class ObjectStore(Store):
    """A store in the bucket or directory that ``url`` names: ``s3://bucket/prefix``, ``file:///directory``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._versions = Versions(url)
        self._table = Table()
        self._sessions = Sessions(self._versions)
        self._pruned: dict[str, float] = {}
        self._paces: dict[str, float] = {}
        survive_forks(self)

    def get(self, key: str) -> Document | None:
        for _ in range(_TRIES):
            newest = self._newest(key)
            if newest == 0:
                return None
            change = self._read(key, newest)
            if change is not None:
                return _document(change)
        raise self._unsettled(key)

    def get_many(self, keys: Sequence[str]) -> Sequence[Document | None]:
        different = list(dict.fromkeys(keys))
        found = dict(zip(different, self._versions.bucket.each(self.get, different), strict=True))
        return [found[key] for key in keys]

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        check_writes([Write(key, expected, value)])
        began = clock.now()
        newest = self._newest(key)
        if expected not in (0, newest):
            return None
        head = self._head(key, newest)
        if expected != (0 if head is None or head.deleted else newest):
            return None
        record, number = Record(secrets.token_hex(8), head.id if head else None, value), newest + 1
        if not self._versions.create(folder_of(key), number, record):
            return None
        if clock.now() - began > _TRUSTED_SECONDS and not self._is_settled(key, number, record):
            return None
        self._table.learn(key, number, Head(record.id, value is None))
        self._prune(key, number)
        return number

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        check_writes(writes)
        by_key: dict[str, list[int]] = {}
        for i, write in enumerate(writes):
            by_key.setdefault(write.key, []).append(i)

        def write_one_key(places: list[int]) -> list[tuple[int, int | None]]:
            return [(i, self.cas(writes[i].key, writes[i].expected, writes[i].value)) for i in places]

        outcome = dict(
            pair for done in self._versions.bucket.each(write_one_key, list(by_key.values())) for pair in done
        )
        return [outcome[i] for i in range(len(writes))]

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        documents: list[Document] = []
        keys = [key for key in self._look(prefix) if key > after]
        while keys and len(documents) < limit:
            wanted = limit - len(documents)
            documents += self._documents(keys[:wanted])
            keys = keys[wanted:]
        return documents

    def scan(self, prefix: str, page: int = 500) -> Iterator[Document]:
        keys = self._look(prefix)
        for i in range(0, len(keys), page):
            yield from self._documents(keys[i : i + page])

    def watch(self, prefix: str, since: int, timeout: float) -> Changes:
        deadline = time.monotonic() + timeout
        # Looking costs requests: where nothing happens it is done less and less often, from call to call.
        pause = self._paces.pop(prefix, _FIRST_POLL)
        while True:
            self._look(prefix)
            until = self._table.sequence
            seen = self._table.since(prefix, since)[:_WATCH_LIMIT]
            # What was replaced since it was listed is seen at the next look.
            changes = [change for change in self._versions.bucket.each(self._change, seen) if change]
            if changes:
                return Changes(changes, seen[-1].sequence if len(seen) == _WATCH_LIMIT else until)
            left = deadline - time.monotonic()
            if left <= 0:
                self._paces[prefix] = pause
                return Changes((), until)
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LAST_POLL)

    def revision(self) -> int:
        return self._table.sequence

    def session(self, ttl: float) -> Session:
        check_ttl(ttl)
        return self._sessions.open(ttl)

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        return self._sessions.alive(sessions)

    def close(self) -> None:
        self._versions.close()

    def after_fork(self) -> None:
        """In a forked child: locks that no thread of the parent holds."""
        self._table.after_fork()
        self._sessions.after_fork()

    def _newest(self, key: str) -> int:
        """The newest version of a document, deleted or not; 0 when it never was."""
        # Older ones than we know do not matter: a busy document has thousands of the last minute.
        versions = self._versions.list(folder_of(key), self._table.version(key))
        if versions:
            self._table.notice([(key, versions[-1].number)])
        return versions[-1].number if versions else 0

    def _look(self, prefix: str) -> Sequence[str]:
        """Notice what is under ``prefix``; its keys in order, those of deleted documents among them."""
        newest: dict[str, Version] = {}
        for folder, versions in self._versions.below(folder_above(prefix)).items():
            key = key_of(folder)
            if key is not None and key.startswith(prefix):
                newest[key] = versions[-1]
        keys = sorted(newest)
        by_time = sorted(keys, key=lambda key: newest[key].modified)
        self._table.notice([(key, newest[key].number) for key in by_time])
        return keys

    def _head(self, key: str, number: int) -> Head | None:
        """What is to be known of the newest version; None when there is none."""
        if number == 0:
            return None
        if self._table.head(key, number) is None and self._read(key, number) is None:
            raise self._unsettled(key)
        return self._table.head(key, number)

    def _read(self, key: str, number: int) -> Change | None:
        """A version; None when it is gone, which happens to those that were replaced."""
        head = self._table.head(key, number)
        if head is not None and head.deleted:
            return Change(key, None, number)
        record = self._versions.read(folder_of(key), number)
        if record is None:
            return None
        self._table.learn(key, number, Head(record.id, record.value is None))
        return Change(key, record.value, number)

    def _change(self, seen: Seen) -> Change | None:
        return self._read(seen.key, seen.version)

    def _documents(self, keys: Sequence[str]) -> Sequence[Document]:
        """The documents of those keys that `_look` has just seen and that have one."""

        def document(key: str) -> Document | None:
            change = self._read(key, self._table.version(key))
            return _document(change) if change else self.get(key)

        return [found for found in self._versions.bucket.each(document, keys) if found]

    def _is_settled(self, key: str, number: int, record: Record) -> bool:
        """Whether a write that took long is part of the document's history."""
        folder = folder_of(key)
        if not self._versions.list(folder, number + 1):
            return True
        follower = self._versions.read(folder, number + 1)
        if follower is not None and follower.after == record.id:
            return True
        with suppress(PenstockError):
            self._versions.delete(folder, [number])
        if follower is None:
            raise self._unsettled(key)
        return False

    def _prune(self, key: str, number: int) -> None:
        now = clock.now()
        if number % _PRUNE_EVERY or now < self._pruned.get(key, 0):
            return
        self._pruned[key] = now + _PRUNE_PAUSE
        folder = folder_of(key)
        with suppress(PenstockError):
            versions = self._versions.list(folder)
            newest = versions[-1].modified
            replaced = [
                version.number
                for version, successor in pairwise(versions[: 1 - _KEEP])
                if newest - successor.modified >= _KEEP_SECONDS
            ]
            self._versions.delete(folder, replaced)

    def _unsettled(self, key: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{key!r} changes faster than it can be read from {self.url}",
            left="a write may or may not have been made",
            hint="read the document and try again",
        )


def _document(change: Change) -> Document | None:
    return None if change.value is None else Document(change.key, change.value, change.version)

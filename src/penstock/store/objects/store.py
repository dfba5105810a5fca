"""A store that needs nothing but a bucket or a directory.

A document is a folder of versions, and its newest version is what it is. `cas` creates the next number,
which only one writer can. What that takes when old versions are removed, and when writers and requests are
late, is told in `penstock.store.objects.chains`. A deleted document leaves nothing behind, so that
everything costs what the living documents cost.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from penstock.core import clocks
from penstock.errors import PenstockError
from penstock.store.backends import check_ttl, check_writes, survive_forks
from penstock.store.base import Change, Changes, Document, Session, Store, Write
from penstock.store.objects.chains import Chains, ChainState, Form, Glance
from penstock.store.objects.names import folder_above, folder_of, key_of
from penstock.store.objects.sessions import Sessions
from penstock.store.objects.table import KnownVersions, Seen
from penstock.store.objects.versions import Version, Versions

# Whoever ended a document removes it. Others do so when they saw the same remains for so long: who is still
# at it could not tell any more whether its own write was made.
_REMAINS_SECONDS = 30.0
_REMAINS_AT_ONCE = 100
_FRESH_SECONDS = 0.1
_PAGES = 4
_WATCH_LIMIT = 1000
_FIRST_POLL, _LAST_POLL = 0.05, 0.5


class ObjectStore(Store):
    """A store in the bucket or directory that ``url`` names: ``s3://bucket/prefix``,
    ``file:///directory``.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._versions = Versions(url)
        self._chains = Chains(self._versions)
        self._table = KnownVersions()
        self._sessions = Sessions(self._versions)
        self._remains: dict[str, tuple[ChainState, float]] = {}
        self._paces: dict[str, float] = {}
        survive_forks(self)

    def get(self, key: str) -> Document | None:
        return _document(key, self._state(key))

    def get_many(self, keys: Sequence[str]) -> Sequence[Document | None]:
        different = list(dict.fromkeys(keys))
        found = dict(zip(different, self._versions.bucket.each(self.get, different), strict=True))
        return [found[key] for key in keys]

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        check_writes([Write(key, expected, value)])
        folder = folder_of(key)
        if expected == 0:
            written = None if value is None else self._chains.create(folder, value)
        else:
            # What is a little older would hardly be wrong, but who loses could not always tell that it lost.
            before = self._table.fresh(key, _FRESH_SECONDS)
            if not before.exists or before.number != expected:
                before = self._state(key)
            if not before.exists or before.number != expected:
                return None
            written = self._chains.append(folder, before, value)
        if written is None:
            return None
        if written.id:
            self._table.learn(key, written)
        if not written.exists:
            with suppress(PenstockError):
                self._chains.clear(folder, written)
        return written.number

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
        newest = self._look(prefix)
        keys = [key for key in sorted(newest) if key > after]
        while keys and len(documents) < limit:
            wanted = limit - len(documents)
            documents += self._documents(prefix, {key: newest[key] for key in keys[:wanted]})
            keys = keys[wanted:]
        return documents

    def scan(self, prefix: str, page: int = 500) -> Iterator[Document]:
        newest = self._look(prefix)
        keys = sorted(newest)
        # Each page ends with another listing of the whole.
        page = max(page, -(-len(keys) // _PAGES))
        for i in range(0, len(keys), page):
            yield from self._documents(prefix, {key: newest[key] for key in keys[i : i + page]})

    def watch(self, prefix: str, since: int, timeout: float) -> Changes:
        deadline = time.monotonic() + timeout
        # Looking costs requests: where nothing happens it is done less and less often, from call to call.
        pause = self._paces.pop(prefix, _FIRST_POLL)
        while True:
            self._look(prefix)
            until = self._table.sequence
            seen = self._table.since(prefix, since)[:_WATCH_LIMIT]
            changes = self._changes(prefix, seen)
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

    def _state(self, key: str) -> ChainState:
        """What a document is now."""
        before = self._table.sequence
        state = self._chains.state(folder_of(key), self._table.head(key))
        if state.number:
            self._table.learn(key, state)
        else:
            self._table.lose(key, before)
        return state

    def _look(self, prefix: str) -> Mapping[str, int]:
        """Notice what is under ``prefix``: the newest version of each key, whether it has a value or not."""
        before, newest = self._table.sequence, self._newest(prefix)
        by_time = sorted(newest, key=lambda key: (newest[key].modified, key))
        self._table.notice([(key, newest[key].number) for key in by_time])
        self._table.miss(prefix, newest, before)
        found = {key: version.number for key, version in newest.items()}
        self._tidy(prefix, found)
        return found

    def _newest(self, prefix: str) -> Mapping[str, Version]:
        newest: dict[str, Version] = {}
        for folder, versions in self._versions.below(folder_above(prefix)).items():
            key = key_of(folder)
            if key is not None and key.startswith(prefix):
                newest[key] = versions[-1]
        return newest

    def _documents(self, prefix: str, newest: Mapping[str, int]) -> Sequence[Document]:
        """The documents of those keys that `_look` has just seen and that have one, in their order."""
        states = self._settled(prefix, newest)
        open_keys = [key for key in newest if key not in states]
        states |= zip(open_keys, self._versions.bucket.each(self._state, open_keys), strict=True)
        found = (_document(key, states[key]) for key in newest)
        return [document for document in found if document]

    def _changes(self, prefix: str, seen: Sequence[Seen]) -> Sequence[Change]:
        """What was noticed, as far as it can be told; what was replaced since is seen at the next look."""
        states = self._settled(prefix, {each.key: each.version for each in seen if not each.gone})
        changes = []
        for each in seen:
            state = states.get(each.key)
            form = each.head.form if each.head and each.gone else state.form if state else None
            if form in (Form.NOTHING, Form.OVER):
                changes.append(Change(each.key, None, each.version))
            elif state and state.exists:
                changes.append(Change(each.key, state.value, state.number))
        return changes

    def _settled(self, prefix: str, newest: Mapping[str, int]) -> dict[str, ChainState]:
        """What the listed versions of keys are, without those that were replaced before they were read."""
        states: dict[str, ChainState] = {}
        wanted = []
        for key, number in newest.items():
            head = self._table.head(key)
            if head.number == number and not head.exists:
                states[key] = head
            else:
                wanted.append(key)
        glances = self._versions.bucket.each(lambda key: self._glance(key, newest[key]), wanted)
        found = {key: glance for key, glance in zip(wanted, glances, strict=True) if glance}
        again: Mapping[str, Version] = {}
        if not all(glance.certain for glance in found.values()):
            again = self._newest(prefix)
        for key, glance in found.items():
            last = again[key].number if key in again else 0
            state = self._chains.judge(folder_of(key), glance, last)
            if state is not None:
                self._table.learn(key, state)
                states[key] = state
        self._note_remains(states)
        return states

    def _glance(self, key: str, number: int) -> Glance | None:
        return self._chains.glance(folder_of(key), number, self._table.head(key))

    def _note_remains(self, states: Mapping[str, ChainState]) -> None:
        """Remember since when there is something of documents that do not exist."""
        now = clocks.now()
        for key, state in states.items():
            known = self._remains.get(key)
            if state.exists:
                self._remains.pop(key, None)
            elif known is None or known[0].number != state.number:
                self._remains[key] = (state, now)

    def _tidy(self, prefix: str, newest: Mapping[str, int]) -> None:
        """Remove what was left of documents by those who ended them and did not come to it."""
        for key in [key for key in list(self._remains) if key.startswith(prefix) and key not in newest]:
            self._remains.pop(key, None)
        now = clocks.now()
        due = [
            (key, state)
            for key, (state, since) in list(self._remains.items())
            if now - since >= _REMAINS_SECONDS and newest.get(key) == state.number
        ]
        for key, state in due[:_REMAINS_AT_ONCE]:
            with suppress(PenstockError):
                self._chains.clear(folder_of(key), state)
                self._remains.pop(key, None)


def _document(key: str, state: ChainState) -> Document | None:
    return None if state.value is None else Document(key, state.value, state.number)

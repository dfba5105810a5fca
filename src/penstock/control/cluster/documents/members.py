"""The members in the store. The store judges who is alive; nobody compares clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.control.cluster.documents import codec
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.rules.model import Member
from penstock.errors import StoreUnavailable, UsageError
from penstock.store.base import Store

_JUDGE_EVERY = 0.5


class Roster:
    """Who takes part in a cluster."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    def join(self, member: Member) -> None:
        """Enter ``member``, or replace what this session entered before. Harmless when repeated.

        `UsageError` when another instance is alive under the same id.
        """
        key = self._keys.member(member.id)
        while True:
            document = self._store.get(key)
            if document is not None:
                found = codec.MEMBER.decode(key, document.value)
                if found == member:
                    return
                if found.session != member.session and self._store.alive([found.session]):
                    raise UsageError(
                        f"another instance is a member under the id {member.id!r}",
                        hint="choose another id, or wait until that one has left",
                    )
            expected = document.version if document else 0
            if self._store.cas(key, expected, codec.MEMBER.encode(member)) is not None:
                return

    def leave(self, member: Member) -> None:
        """Take ``member`` out, if the entry is still that of its session."""
        self._remove(member)

    def all(self) -> list[Member]:
        """Every entry, also those of members that are gone and were not swept yet."""
        documents = self._store.scan(self._keys.members)
        return [codec.MEMBER.decode(document.key, document.value) for document in documents]

    def live(self) -> list[Member]:
        """The members that are alive by the store's judgement, in order of their ids."""
        members = self.all()
        alive = self._store.alive([member.session for member in members])
        return [member for member in members if member.session in alive]

    def sweep(self) -> list[Member]:
        """`live`, after removing the entries of members that are gone. Death is final: anyone may do it."""
        members = self.all()
        alive = self._store.alive([member.session for member in members])
        for member in members:
            if member.session not in alive:
                self._remove(member)
        return [member for member in members if member.session in alive]

    def watch(
        self, known: Sequence[Member], timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> list[Member]:
        """The live members as soon as they are others than ``known``, or after ``timeout`` seconds.

        An entry that changes is seen at once, a member that dies within half a second of its expiry.
        """
        deadline = clock() + timeout
        since = self._store.revision()
        while True:
            members = self.live()
            left = deadline - clock()
            if members != list(known) or left <= 0:
                return members
            _, since = self._store.watch(self._keys.members, since, min(_JUDGE_EVERY, left))

    def _remove(self, member: Member) -> None:
        key = self._keys.member(member.id)
        document = self._store.get(key)
        if document is None or codec.MEMBER.decode(key, document.value).session != member.session:
            return
        try:
            self._store.cas(key, document.version, None)
        except StoreUnavailable:
            return  # the next sweep finds it again

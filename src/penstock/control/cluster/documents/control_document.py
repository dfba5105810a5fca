"""The control document in the store: read, apply a rule, swap, try again."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from penstock.control.cluster.documents import codec
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.rules.commands import Command
from penstock.control.cluster.rules.machine import Answer, ControlAccepted, Why, apply
from penstock.control.cluster.rules.model import Control
from penstock.errors import LeadershipLost, StoreUnavailable
from penstock.store.base import Changes, Store


class Room:
    """Where the control document is read and changed. Safe for many threads.

    It remembers the newest it saw, which saves a leader the reading: a write proves that it was not old, and
    a refusal never comes from memory.
    """

    def __init__(self, store: Store, keys: Keys) -> None:
        self.store = store
        self.keys = keys
        self._seen: _Seen | None = None
        self._lock = threading.Lock()

    def read(self) -> Control:
        """The control as it is now; an empty one before the first leader."""
        return self._fetch().control

    @property
    def newest(self) -> Control:
        """The newest control that any read or watch of this room has seen. It never goes back."""
        return self._seen.control if self._seen else Control()

    def submit(self, command: Command) -> tuple[Control, Answer]:
        """The control that ``command`` was applied to or refused by, and the answer.

        After `StoreUnavailable` it is not known whether it was applied; submit the same command again.
        """
        remembered = self._seen
        while True:
            seen = remembered or self._fetch()
            after, answer = apply(seen.control, command)
            if after is seen.control and remembered is None:
                return after, answer
            if after is not seen.control:
                version = self.store.cas(self.keys.control, seen.version, codec.CONTROL.encode(after))
                if version is not None:
                    self._remember(_Seen(version, after))
                    return after, answer
            remembered = None

    def lead(self, command: Command) -> tuple[Control, Why | None]:
        """`submit` for the leader: raises `LeadershipLost` when somebody else leads; why, if refused."""
        control, answer = self.submit(command)
        if isinstance(answer, ControlAccepted):
            return control, None
        if answer.why is Why.STALE:
            raise lost(control)
        return control, answer.why

    def watch(self, since: int, timeout: float) -> Changes:
        """Wait for a change of the control document, which is then `newest`."""
        changes = self.store.watch(self.keys.control, since, timeout)
        for change in changes.changes[-1:]:
            if change.value is not None:
                self._decoded(change.version, change.value)
        return changes

    def _fetch(self) -> _Seen:
        known = self._seen
        document = self.store.get(self.keys.control)
        if known is not None and (document is None or document.version < known.version):
            self._seen = None
            raise StoreUnavailable(
                f"the store went back behind what it said before ({self.keys.control})",
                hint="it was restored from a backup or emptied: restart the instances that were running",
            )
        return self._decoded(document.version, document.value) if document else _Seen(0, Control())

    def _decoded(self, version: int, value: bytes) -> _Seen:
        seen = self._seen
        if seen is not None and seen.version >= version:
            return seen
        return self._remember(_Seen(version, codec.CONTROL.decode(self.keys.control, value)))

    def _remember(self, seen: _Seen) -> _Seen:
        with self._lock:
            if self._seen is None or self._seen.version < seen.version:
                self._seen = seen
            return self._seen


@dataclass(frozen=True, slots=True)
class _Seen:
    version: int
    control: Control


def lost(control: Control) -> LeadershipLost:
    """The error of a leader that is none any more."""
    leader = control.lease.member if control.lease.owner else "nobody"
    return LeadershipLost(
        f"this instance does not lead any more: {leader} does, with token {control.lease.token}",
        left="nothing was written",
    )

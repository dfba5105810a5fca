"""The control document in the store: read, apply a rule, swap, try again."""

from __future__ import annotations

from penstock.cluster import codec
from penstock.cluster.commands import Command
from penstock.cluster.keys import Keys
from penstock.cluster.machine import Accepted, Answer, Why, apply
from penstock.cluster.model import Control
from penstock.errors import LeadershipLost
from penstock.store.base import Changes, Document, Store


class Room:
    """Where the control document is read and changed. Holds no state of its own."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self.store = store
        self.keys = keys

    def read(self) -> Control:
        """The control as it is now; an empty one before the first leader."""
        return self._decoded(self.store.get(self.keys.control))

    def submit(self, command: Command) -> tuple[Control, Answer]:
        """The control that ``command`` was applied to or refused by, and the answer.

        After `StoreUnavailable` it is not known whether it was applied; submit the same command again.
        """
        while True:
            document = self.store.get(self.keys.control)
            before = self._decoded(document)
            after, answer = apply(before, command)
            if after is before:
                return before, answer
            expected = document.version if document else 0
            if self.store.cas(self.keys.control, expected, codec.encode_control(after)) is not None:
                return after, answer

    def lead(self, command: Command) -> tuple[Control, Why | None]:
        """`submit` for the leader: raises `LeadershipLost` when somebody else leads; why, if refused."""
        control, answer = self.submit(command)
        if isinstance(answer, Accepted):
            return control, None
        if answer.why is Why.STALE:
            raise lost(control)
        return control, answer.why

    def watch(self, since: int, timeout: float) -> Changes:
        """Wait for a change of the control document."""
        return self.store.watch(self.keys.control, since, timeout)

    def _decoded(self, document: Document | None) -> Control:
        return codec.decode_control(document.key, document.value) if document else Control()


def lost(control: Control) -> LeadershipLost:
    """The error of a leader that is none any more."""
    leader = control.lease.member if control.lease.owner else "nobody"
    return LeadershipLost(
        f"this instance does not lead any more: {leader} does, with token {control.lease.token}",
        left="nothing was written",
    )

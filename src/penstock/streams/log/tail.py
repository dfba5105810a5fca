"""The newest committed epochs, which stand in decision records and are not in the log yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.cluster import codec
from penstock.cluster.keys import Keys
from penstock.cluster.model import Decision, Outcome
from penstock.store.base import Store
from penstock.streams.model import END, SCOPE, Brought, Epoch
from penstock.streams.segments import LogDocument, between


class BrokenChain(Exception):
    """The record of a committed epoch is not there."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"the record of the committed epoch {epoch} is missing")
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class Tail:
    """The committed epochs after ``after``, up to ``upto``: those that have rows, or the end."""

    after: int = 0
    upto: int = 0
    ended: int | None = None
    epochs: tuple[Epoch, ...] = ()

    def behind(self, document: LogDocument) -> Tail:
        """Without what the log has taken over."""
        if document.taken > self.upto or document.taken < self.after:
            return Tail(document.taken, document.taken, document.ended)
        rest = between(self.epochs, document.taken + 1, self.upto)
        return replace(self, after=document.taken, epochs=rest)

    def extended(self, decisions: Iterable[Decision]) -> Tail:
        """With the decisions that follow, oldest first."""
        upto, ended, epochs = self.upto, self.ended, list(self.epochs)
        for decision in decisions:
            is_end = ended is None and decision.watermark == END
            ended = decision.epoch if is_end else ended
            epoch = epoch_from(decision, is_end)
            if epoch.rows or epoch.late or epoch.ended:
                epochs.append(epoch)
            upto = decision.epoch
        return replace(self, upto=upto, ended=ended, epochs=tuple(epochs))


def epoch_from(decision: Decision, ended: bool) -> Epoch:
    """A committed decision as readers see it."""
    return Epoch(decision.epoch, tuple(map(Brought.decode, decision.files)), ended, decision.at)


def chain(decisions: Mapping[int, Decision], after: int, upto: int) -> list[Decision]:
    """The committed decisions after ``after``, up to ``upto``, oldest first, or `BrokenChain`.

    Each committed decision names the one before. What else stands among the records (aborts, what is decided
    but not published, what a leader wrote that slept for long) is not in the chain.
    """
    found: list[Decision] = []
    while upto > after:
        decision = decisions.get(upto)
        if decision is None or decision.outcome is not Outcome.COMMIT:
            raise BrokenChain(upto)
        found.append(decision)
        upto = decision.previous
    if upto < after:
        raise BrokenChain(after)
    return found[::-1]


def read_chain(store: Store, keys: Keys, after: int, upto: int) -> list[Decision]:
    """`chain` of the records in the store; nothing else of them is read."""
    found: dict[int, Decision] = {}
    prefix, position, end = keys.epochs(SCOPE), keys.epoch(SCOPE, after), keys.epoch(SCOPE, upto)
    while position < end and (documents := store.list(prefix, position)):
        for document in documents:
            if document.key <= end:
                decision = codec.decode_decision(document.key, document.value)
                found[decision.epoch] = decision
        position = documents[-1].key
    return chain(found, after, upto)

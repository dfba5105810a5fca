"""The newest committed epochs, which stand in decision records and are not in the log yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.rules.model import Decision, Outcome
from penstock.streams.log.segments import LogDocument, between
from penstock.streams.model import END, SCOPE, Brought, Epoch


class BrokenChain(Exception):
    """The record of a committed epoch is not there."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"the record of the committed epoch {epoch} is missing")
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class Tail:
    """The committed epochs after ``after``, up to ``upto``: those that tell readers something."""

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
            if epoch.tells:
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


def read_chain(records: Records, after: int, upto: int) -> Iterator[Decision]:
    """`chain` of the records in the store. Of others than those no page is read, and one after the other."""
    found = {recorded.head.epoch: recorded for recorded in records.recorded(SCOPE, after, upto)}
    heads = {epoch: recorded.head for epoch, recorded in found.items()}
    for head in chain(heads, after, upto):
        decision = records.whole(SCOPE, found[head.epoch])
        if decision is None:
            raise BrokenChain(head.epoch)
        yield decision

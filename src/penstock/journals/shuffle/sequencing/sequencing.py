"""What one document means, after all that its producer wrote before it into the same journal.

A producer's clock grows with each of its documents, over all journals: producer and clock name one document
for ever. What comes with a clock that was passed already is a repetition.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, Self

from penstock.errors import SourceFailed
from penstock.journals.format.uuids import Flag, producer_text


class Sequence(NamedTuple):
    """Where a producer stands in a journal. Clock 0 is none.

    ``begin`` is the offset of the first document of the open transaction, -1 if none is open. A reader that
    kept this state goes on behind the last document that it read. One that goes back to ``begin`` starts from
    ``Sequence(last_commit)``, since with ``max_continue`` it would take the open documents for repetitions.
    """

    last_commit: int = 0
    max_continue: int = 0
    begin: int = -1

    @property
    def is_open(self) -> bool:
        """Whether there are documents that wait for their ack."""
        return self.max_continue != 0


class DocumentOutcome(Enum):
    """What a document does. An ack itself is never handed on."""

    COMMITTED = auto()
    """It stands outside of transactions and is visible at once."""
    OUTSIDE_DUPLICATE = auto()
    CONTINUE_BEGINS = auto()
    CONTINUE_EXTENDS = auto()
    CONTINUE_DUPLICATE = auto()
    ACK_COMMITS = auto()
    """The documents of the open transaction become visible, under the ack's clock."""
    ACK_EMPTY = auto()
    """It commits a transaction without documents in this journal."""
    ACK_DUPLICATE = auto()
    ACK_CLEANLY_ROLLS_BACK = auto()
    """The open transaction is dropped: its producer went back to its last commit."""
    ACK_DEEP_ROLLS_BACK = auto()
    """The open transaction is dropped: its producer went back to before its last commit."""


class BadSequence(SourceFailed):
    """A producer's documents in a journal do not form transactions."""

    code = "bad-sequence"

    def told(self, journal: str, producer: int) -> Self:
        """The same error, with the names that `step` does not know."""
        return type(self)(
            f"journal {journal!r}, producer {producer_text(producer)}: {self.what}",
            left="nothing of this reading was handed on",
            hint="its program does not write as a producer must, or two of them use the same producer; to go "
            'on without this transaction: JournalSource(…, on_disorder="skip")',
        )


class OutsideInTransaction(BadSequence):
    """A document outside of transactions stands in an open transaction."""

    code = "outside-in-transaction"


class PartialCommit(BadSequence):
    """An ack commits a part of a transaction only."""

    code = "partial-commit"


class ProducerForgotten(SourceFailed):
    """A document may be a repetition or not: its producer wrote nothing for so long that it was forgotten."""

    code = "producer-forgotten"


class JournalForgotten(SourceFailed):
    """A document may be a repetition or not: its journal may be one that was gone, and was forgotten."""

    code = "journal-forgotten"


def step(sequence: Sequence, flag: Flag, clock: int, offset: int) -> tuple[Sequence, DocumentOutcome]:
    """What the document at ``offset`` does, and where its producer stands after it.

    `OutsideInTransaction` and `PartialCommit` name the clock; add the rest with `BadSequence.told`.

    A deep roll-back leaves ``last_commit`` as it is. What was committed up to there was handed on and cannot
    be taken back, so if the producer writes it again, under the same clocks, it must count as a repetition:
    nothing twice. Whatever it writes anew has higher clocks: nothing lost. It also keeps a second reading
    right: one that starts before a roll-back that was followed by commits meets documents above
    ``last_commit`` whose ack lies below it, drops them, and finds the commits to be repetitions.
    """
    match flag:
        case Flag.OUTSIDE:
            return _outside(sequence, clock)
        case Flag.CONTINUE:
            return _continue(sequence, clock, offset)
        case Flag.ACK:
            return _ack(sequence, clock)


def step_dropping(
    sequence: Sequence, flag: Flag, clock: int, offset: int
) -> tuple[Sequence, DocumentOutcome]:
    """What a document does for which `step` raises, if the transaction that is open there is dropped.

    An ack counts as one of a transaction without documents, so that nothing waits for it in vain.
    """
    return step(Sequence(sequence.last_commit), flag, clock, offset)


def _outside(sequence: Sequence, clock: int) -> tuple[Sequence, DocumentOutcome]:
    if sequence.is_open:
        raise OutsideInTransaction(
            f"the document with clock {clock} stands outside of transactions, but the one from offset "
            f"{sequence.begin} up to clock {sequence.max_continue} is open"
        )
    if clock <= sequence.last_commit:
        return sequence, DocumentOutcome.OUTSIDE_DUPLICATE
    return Sequence(clock), DocumentOutcome.COMMITTED


def _continue(sequence: Sequence, clock: int, offset: int) -> tuple[Sequence, DocumentOutcome]:
    if clock <= sequence.last_commit or clock <= sequence.max_continue:
        return sequence, DocumentOutcome.CONTINUE_DUPLICATE
    if sequence.is_open:
        return Sequence(sequence.last_commit, clock, sequence.begin), DocumentOutcome.CONTINUE_EXTENDS
    return Sequence(sequence.last_commit, clock, offset), DocumentOutcome.CONTINUE_BEGINS


def _ack(sequence: Sequence, clock: int) -> tuple[Sequence, DocumentOutcome]:
    if clock <= sequence.last_commit:
        if not sequence.is_open:
            return sequence, DocumentOutcome.ACK_DUPLICATE
        cleanly = clock == sequence.last_commit
        return Sequence(sequence.last_commit), (
            DocumentOutcome.ACK_CLEANLY_ROLLS_BACK if cleanly else DocumentOutcome.ACK_DEEP_ROLLS_BACK
        )
    if not sequence.is_open:
        return Sequence(clock), DocumentOutcome.ACK_EMPTY
    if sequence.max_continue > clock:
        raise PartialCommit(
            f"the ack with clock {clock} commits only a part of the transaction from offset "
            f"{sequence.begin} up to clock {sequence.max_continue}"
        )
    return Sequence(clock), DocumentOutcome.ACK_COMMITS

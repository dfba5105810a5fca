"""What one document does, row by row."""

from __future__ import annotations

import pickle

import pytest

from penstock.errors import SourceFailed
from penstock.journals.format.uuids import Flag
from penstock.journals.shuffle.sequencing.sequencing import (
    BadSequence,
    DocumentOutcome,
    OutsideInTransaction,
    PartialCommit,
    Sequence,
    step,
)

NEW = Sequence()
DONE = Sequence(10)
FIRST = Sequence(0, 5, 100)
AGAIN = Sequence(10, 15, 100)
HERE = 700
LAST = (1 << 64) - 1

ROWS = [
    # outside of transactions
    (NEW, Flag.OUTSIDE, 1, Sequence(1), DocumentOutcome.COMMITTED),
    (NEW, Flag.OUTSIDE, LAST, Sequence(LAST), DocumentOutcome.COMMITTED),
    (NEW, Flag.OUTSIDE, 0, NEW, DocumentOutcome.OUTSIDE_DUPLICATE),
    (DONE, Flag.OUTSIDE, 11, Sequence(11), DocumentOutcome.COMMITTED),
    (DONE, Flag.OUTSIDE, 10, DONE, DocumentOutcome.OUTSIDE_DUPLICATE),
    (DONE, Flag.OUTSIDE, 9, DONE, DocumentOutcome.OUTSIDE_DUPLICATE),
    # in a transaction
    (NEW, Flag.CONTINUE, 1, Sequence(0, 1, HERE), DocumentOutcome.CONTINUE_BEGINS),
    (NEW, Flag.CONTINUE, 0, NEW, DocumentOutcome.CONTINUE_DUPLICATE),
    (DONE, Flag.CONTINUE, 11, Sequence(10, 11, HERE), DocumentOutcome.CONTINUE_BEGINS),
    (DONE, Flag.CONTINUE, 10, DONE, DocumentOutcome.CONTINUE_DUPLICATE),
    (DONE, Flag.CONTINUE, 9, DONE, DocumentOutcome.CONTINUE_DUPLICATE),
    (FIRST, Flag.CONTINUE, 6, Sequence(0, 6, 100), DocumentOutcome.CONTINUE_EXTENDS),
    (AGAIN, Flag.CONTINUE, 16, Sequence(10, 16, 100), DocumentOutcome.CONTINUE_EXTENDS),
    (AGAIN, Flag.CONTINUE, 15, AGAIN, DocumentOutcome.CONTINUE_DUPLICATE),
    (AGAIN, Flag.CONTINUE, 12, AGAIN, DocumentOutcome.CONTINUE_DUPLICATE),
    (AGAIN, Flag.CONTINUE, 10, AGAIN, DocumentOutcome.CONTINUE_DUPLICATE),
    # acks
    (DONE, Flag.ACK, 10, DONE, DocumentOutcome.ACK_DUPLICATE),
    (AGAIN, Flag.ACK, 10, DONE, DocumentOutcome.ACK_CLEANLY_ROLLS_BACK),
    (FIRST, Flag.ACK, 0, NEW, DocumentOutcome.ACK_CLEANLY_ROLLS_BACK),
    (NEW, Flag.ACK, 0, NEW, DocumentOutcome.ACK_DUPLICATE),
    (DONE, Flag.ACK, 9, DONE, DocumentOutcome.ACK_DUPLICATE),
    (AGAIN, Flag.ACK, 9, DONE, DocumentOutcome.ACK_DEEP_ROLLS_BACK),
    (AGAIN, Flag.ACK, 0, DONE, DocumentOutcome.ACK_DEEP_ROLLS_BACK),
    (NEW, Flag.ACK, 1, Sequence(1), DocumentOutcome.ACK_EMPTY),
    (DONE, Flag.ACK, 11, Sequence(11), DocumentOutcome.ACK_EMPTY),
    (FIRST, Flag.ACK, 5, Sequence(5), DocumentOutcome.ACK_COMMITS),
    (AGAIN, Flag.ACK, 15, Sequence(15), DocumentOutcome.ACK_COMMITS),
    (AGAIN, Flag.ACK, 99, Sequence(99), DocumentOutcome.ACK_COMMITS),
]


@pytest.mark.parametrize(("before", "flag", "clock", "after", "outcome"), ROWS)
def test_a_document(
    before: Sequence, flag: Flag, clock: int, after: Sequence, outcome: DocumentOutcome
) -> None:
    assert step(before, flag, clock, HERE) == (after, outcome)


def test_every_outcome_has_a_row() -> None:
    assert {outcome for *_, outcome in ROWS} == set(DocumentOutcome)


@pytest.mark.parametrize("clock", [0, 9, 10, 12, 15, 16])
def test_nothing_outside_of_transactions_stands_in_one(clock: int) -> None:
    with pytest.raises(OutsideInTransaction, match=f"clock {clock} .* offset 100 up to clock 15 is open"):
        step(AGAIN, Flag.OUTSIDE, clock, HERE)


@pytest.mark.parametrize("clock", [11, 14])
def test_no_ack_commits_a_part(clock: int) -> None:
    with pytest.raises(PartialCommit, match=f"clock {clock} commits only a part .* up to clock 15"):
        step(AGAIN, Flag.ACK, clock, HERE)


def test_an_error_is_told_with_names_and_survives_a_process() -> None:
    with pytest.raises(BadSequence) as caught:
        step(AGAIN, Flag.ACK, 11, HERE)
    told = caught.value.told("acme/orders/0", 0x0123456789AB)
    assert isinstance(told, PartialCommit) and isinstance(told, SourceFailed)
    assert told.what.startswith("journal 'acme/orders/0', producer 0123456789ab: the ack with clock 11 ")
    assert told.left and told.hint
    assert str(pickle.loads(pickle.dumps(told))) == str(told)


def test_a_second_reading_over_a_roll_back_changes_nothing() -> None:
    """It starts within what was rolled back, with the commit that came later."""
    log = [(Flag.CONTINUE, 25), (Flag.ACK, 20), (Flag.CONTINUE, 21), (Flag.ACK, 22), (Flag.OUTSIDE, 23)]
    sequence, outcomes = Sequence(23), []
    for offset, (flag, clock) in enumerate(log):
        sequence, outcome = step(sequence, flag, clock, offset)
        outcomes.append(outcome)
    assert sequence == Sequence(23)
    assert outcomes == [
        DocumentOutcome.CONTINUE_BEGINS,
        DocumentOutcome.ACK_DEEP_ROLLS_BACK,
        DocumentOutcome.CONTINUE_DUPLICATE,
        DocumentOutcome.ACK_DUPLICATE,
        DocumentOutcome.OUTSIDE_DUPLICATE,
    ]

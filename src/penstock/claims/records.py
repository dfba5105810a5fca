"""What a failure does to a record."""

from __future__ import annotations

from penstock.claims.model import Failure, Record, State

KEPT_ERRORS = 5
ERROR_LENGTH = 500


def failed(record: Record, error: str, max_failures: int) -> Record:
    """The record after one more failure: pending, or poisoned when it was the last one allowed."""
    attempts = record.attempts + 1
    return Record(
        record.range,
        State.POISONED if attempts >= max_failures else State.PENDING,
        record.token,
        attempts=attempts,
        errors=with_error(record, error),
        checkpoints=record.checkpoints,
    )


def with_error(record: Record, error: str) -> tuple[Failure, ...]:
    """The record's errors and one more of its owner: the last few, cut to a readable length."""
    text = error if len(error) <= ERROR_LENGTH else error[: ERROR_LENGTH - 1] + "…"
    return (*record.errors, Failure(record.owner, text))[-KEPT_ERRORS:]

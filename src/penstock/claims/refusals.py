"""Refused answers as errors."""

from __future__ import annotations

from penstock.claims.model import Answer, Refusal, Refused
from penstock.errors import (
    PenstockError,
    RangeOverlap,
    SessionLost,
    StaleToken,
    UnknownPartition,
    UsageError,
)

_ERRORS: dict[Refusal, type[PenstockError]] = {
    Refusal.STALE_TOKEN: StaleToken,
    Refusal.SESSION_LOST: SessionLost,
    Refusal.OVERLAP: RangeOverlap,
    Refusal.UNKNOWN: UnknownPartition,
    Refusal.WRONG_STATE: UsageError,
}


def as_error(answer: Answer) -> PenstockError:
    """The error that a refused command raises."""
    if isinstance(answer, Refused):
        return _ERRORS[answer.kind](answer.message)
    raise TypeError(f"not an answer to this command: {answer!r}")

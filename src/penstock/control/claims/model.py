"""The values of the claim machine: what is known about partitions, what failures do to them,
and the answers to commands.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.core.ranges import Range
from penstock.errors import (
    PenstockError,
    RangeOverlap,
    SessionLost,
    StaleToken,
    UnknownPartition,
    UsageError,
)

Alive = Callable[[str], bool]
"""The store's judgement on a session id."""


class PartitionState(enum.StrEnum):
    """Where a partition stands. Only a claimed one has an owner."""

    PENDING = "pending"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    POISONED = "poisoned"


SETTLED = frozenset({PartitionState.COMPLETED, PartitionState.POISONED})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, and whose it was."""

    owner: str
    error: str


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """Points at a complete checkpoint.

    That is the stage it follows, the token it was written under, and the digest of its manifest.
    """

    stage: int
    token: int
    digest: str


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition that was touched at least once.

    ``token`` grows with each claim of any of its rows, also when the rows are cut anew; ``session``
    judges whether the owner is alive, ``owner`` names it to people; ``attempts`` counts failures.
    ``request`` is the claim that a claimed one was granted to, which knows it by that if asked again.
    ``line`` is the codec's: the encoded record, kept so that it is encoded once.
    """

    range: Range
    state: PartitionState
    token: int = 0
    owner: str = ""
    session: str = ""
    attempts: int = 0
    errors: tuple[Failure, ...] = ()
    checkpoints: tuple[CheckpointRef, ...] = ()
    digest: str = ""
    request: str = ""
    line: str | None = field(default=None, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Grant:
    """A partition as it was handed out."""

    range: Range
    token: int
    attempts: int = 0
    checkpoints: tuple[CheckpointRef, ...] = ()


class Refusal(enum.StrEnum):
    """Why a command was refused."""

    STALE_TOKEN = "stale-token"  # noqa: S105
    SESSION_LOST = "session-lost"
    OVERLAP = "range-overlap"
    UNKNOWN = "unknown-partition"
    WRONG_STATE = "wrong-state"


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer to `ClaimPartitions`: as many as there were, up to the number asked for."""

    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to every other command: the state in which the partition is now."""

    state: PartitionState


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was changed."""

    kind: Refusal
    message: str


Answer = Granted | Accepted | Refused


@dataclass(frozen=True, slots=True)
class Memory:
    """The answer that a request got, for when it is asked again. ``line`` as in `PartitionRecord`."""

    request: str
    answer: Accepted
    line: str | None = field(default=None, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Shard:
    """The partitions of ``span``: a record for each that was touched, in row order.

    All other rows are free, to be cut at multiples of ``grid``.
    """

    span: Range
    grid: int
    records: tuple[PartitionRecord, ...] = ()
    memories: tuple[Memory, ...] = ()

    @property
    def done(self) -> bool:
        """Whether every row is completed or poisoned."""
        end = self.span.end
        # Work goes upwards, so what is open is found soonest from the end.
        for record in reversed(self.records):
            if record.range.end != end or record.state not in SETTLED:
                return False
            end = record.range.begin
        return end == self.span.begin

    def gaps(self) -> Iterator[Range]:
        """The stretches of free rows, uncut."""
        begin = self.span.begin
        for record in self.records:
            if record.range.begin > begin:
                yield Range(begin, record.range.begin)
            begin = record.range.end
        if begin < self.span.end:
            yield Range(begin, self.span.end)

    def free(self) -> Iterator[Range]:
        """The free rows, cut into partitions."""
        for gap in self.gaps():
            begin = gap.begin
            while begin < gap.end:
                end = min(begin - begin % self.grid + self.grid, gap.end)
                yield Range(begin, end)
                begin = end


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


KEPT_ERRORS = 5
ERROR_LENGTH = 500
OLDER_LENGTH = 100
_BYTES = 2
"""So many bytes for each character at most: a shard in which everything failed must fit its document."""


def failed(record: PartitionRecord, error: str, max_failures: int) -> PartitionRecord:
    """The record after one more failure: pending, or poisoned when it was the last one allowed."""
    attempts = record.attempts + 1
    return PartitionRecord(
        record.range,
        PartitionState.POISONED if attempts >= max_failures else PartitionState.PENDING,
        record.token,
        attempts=attempts,
        errors=with_error(record, error),
        checkpoints=record.checkpoints,
    )


def with_error(record: PartitionRecord, error: str) -> tuple[Failure, ...]:
    """The record's errors and one more of its owner: the last few, the newest cut to a readable length.

    Of those before only the beginning is kept.
    """
    older = [Failure(each.owner, _cut(each.error, OLDER_LENGTH)) for each in record.errors]
    return (*older[1 - KEPT_ERRORS :], Failure(record.owner, _cut(error, ERROR_LENGTH)))


def _cut(text: str, length: int) -> str:
    short = text if len(text) <= length else text[: length - 1] + "…"
    while len(json.dumps(short)) > _BYTES * length + 2:
        short = short[: max(1, len(short) * 9 // 10) - 1] + "…"
    return short

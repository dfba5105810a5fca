"""What can be asked of a shard, and the names of requests.

A ``request`` names a question: asked again, it gets its answer again.
"""

from __future__ import annotations

import itertools
import os
import secrets
from dataclasses import dataclass

from penstock.control.claims.model import CheckpointRef
from penstock.core.ranges import Range


@dataclass(frozen=True, slots=True)
class Command:
    request: str


@dataclass(frozen=True, slots=True)
class ClaimPartitions(Command):
    """Take up to ``count`` partitions, or exactly the given ``ranges``, for a session."""

    session: str
    owner: str
    count: int
    max_failures: int
    ranges: tuple[Range, ...] | None = None


@dataclass(frozen=True, slots=True)
class Held(Command):
    """A command of an owner about a partition it was granted; refused unless it still holds it."""

    range: Range
    token: int
    session: str


@dataclass(frozen=True, slots=True)
class Renew(Held):
    """Ask whether the partition is still held. Changes nothing: the session is what lives on."""


@dataclass(frozen=True, slots=True)
class AckPartition(Held):
    """Complete the partition, publishing the output whose manifest has ``digest``."""

    digest: str


@dataclass(frozen=True, slots=True)
class Release(Held):
    """Give the partition back. No failure is counted."""


@dataclass(frozen=True, slots=True)
class Fail(Held):
    """Give the partition back after a failure; it is poisoned at the ``max_failures``-th."""

    error: str
    max_failures: int


@dataclass(frozen=True, slots=True)
class SaveCheckpoint(Held):
    """Record a checkpoint. It replaces those of the same and later stages, which it supersedes."""

    ref: CheckpointRef


@dataclass(frozen=True, slots=True)
class DropCheckpoint(Held):
    """Forget the checkpoint of a stage, because it cannot be used."""

    stage: int


@dataclass(frozen=True, slots=True)
class Poison(Command):
    """Operator: set a partition aside."""

    range: Range
    reason: str


@dataclass(frozen=True, slots=True)
class RetryPartition(Command):
    """Operator: let a poisoned partition be claimed again, with a clean count of failures."""

    range: Range


@dataclass(frozen=True, slots=True)
class ForceRelease(Command):
    """Operator: take a partition from its owner, whose token is stale from then on."""

    range: Range


class Requests:
    """Request ids that no other board uses, not even the copy of this one in a forked process."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._process = 0
        self._name = ""

    def next(self) -> str:
        """A new one."""
        if self._process != os.getpid():
            self._name = secrets.token_hex(5)
            self._process = os.getpid()
        return f"{self._name}.{next(self._numbers)}"

"""What the events and the store tell about the takeover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from demo.killing import Death
from penstock.batch.runner.events import Event
from penstock.core.ranges import PartitionName


@dataclass(frozen=True, slots=True)
class Claimed:
    """The life of one partition: who had it, under which tokens, and how it was finished."""

    partition: PartitionName
    owners: tuple[str, ...]
    tokens: tuple[int, ...]
    resumed_at: int | None
    """The first stage that its last owner ran, if that was not the first one of all."""
    finished: bool


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The work that was lost. A row counts once for each stage that it went through."""

    claims: int
    """Claims in flight when the instance died."""
    rows: int
    """Rows of the stages that had begun and were not checkpointed."""
    reused: int
    """Rows of the stages that the survivor took from checkpoints."""
    total: int
    """Rows of all stages of all partitions."""
    as_expected: bool
    """Each claim was resumed right after its last checkpoint, and no completed partition was touched."""


def lives(events: Sequence[Event]) -> list[Claimed]:
    """Every partition that was claimed, phase by phase."""
    found: dict[PartitionName, list[Event]] = {}
    for event in events:
        found.setdefault(event.name, []).append(event)
    return [_life(partition, found[partition]) for partition in sorted(found)]


def _life(partition: PartitionName, events: Sequence[Event]) -> Claimed:
    claims = [e for e in events if e.kind == "claimed"]
    last = claims[-1].token
    resumed = [e.stage for e in events if e.kind == "resumed" and e.token == last]
    return Claimed(
        partition,
        tuple(e.instance for e in claims),
        tuple(e.token for e in claims),
        resumed[0] if resumed else None,
        any(e.kind == "acked" and e.token == last for e in events),
    )


def recomputed(claimed: Sequence[Claimed], death: Death, stages: int) -> Recomputed:
    """What the death cost.

    With a checkpoint after every stage that is, for each claim in flight, the one stage that it was
    at. Stages after that one had not begun: whoever runs them runs them for the first time.
    """
    saved = {
        PartitionName(0, v.range): max((c.stage + 1 for c in v.checkpoints), default=0) for v in death.held
    }
    as_expected = all(
        (c.resumed_at or 0) == saved[c.partition] and len(c.owners) == 2
        if c.partition in saved
        else c.resumed_at is None and len(c.owners) == 1
        for c in claimed
    )
    return Recomputed(
        claims=len(saved),
        rows=sum(partition.range.rows for partition in saved),
        reused=sum(partition.range.rows * done for partition, done in saved.items()),
        # Later phases have key ranges, with the same rows once more.
        total=sum(c.partition.range.rows for c in claimed if not c.partition.phase) * stages,
        as_expected=as_expected,
    )

"""What an instance owns as of an epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.cluster.rules.model import Decision
from penstock.sources.base import PartName
from penstock.streams.ingest.absent_journals import Absent
from penstock.streams.ingest.finished_parts import FinishedParts
from penstock.streams.model import PartState, Standing

Parts = Mapping[PartName, PartState]


@dataclass(frozen=True, slots=True)
class Holding:
    """What an instance owns as of an epoch."""

    parts: Parts = field(default_factory=dict)
    """Those that go on."""
    standing: Standing = field(default_factory=Standing)
    finished_parts: FinishedParts = field(default_factory=FinishedParts)
    absent: Absent = field(default_factory=dict)
    """For how long journals of the sources that it lists were missing."""
    queues: Parts = field(default_factory=dict)
    """Its queues of journals that have event time, for that alone."""
    looked: Mapping[str, int] = field(default_factory=dict)
    """By source, what it had brought when all its journals were last read to their ends."""
    told: Mapping[str, int] = field(default_factory=dict)
    """The watermarks that readers know of."""
    finished: int | None = None
    """Since which epoch all parts that anybody knows have finished."""
    settled: bool = False
    """Whether an epoch was committed since it was assigned."""


def standings_of(decision: Decision | None) -> list[Standing]:
    """Where each instance stands after a committed epoch."""
    return [Standing.decode(text) for text in decision.frontiers.values()] if decision else []


def divided(parts: Parts) -> tuple[Parts, Parts]:
    """Those that go on, and those that have finished."""
    done = {name: PartState(known.state, True) for name, known in parts.items() if known.finished}
    return {name: known for name, known in parts.items() if name not in done} if done else parts, done

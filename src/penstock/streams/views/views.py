"""What people are shown of a stream, as values: text, JSON and ``--watch`` come from the same ones.

Two views are equal when nothing happened that people want to hear of: that time goes by does not count.
The figures in them are computed from the records of epochs, by pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from penstock.control.cluster.rules.assignment import part_owner
from penstock.control.cluster.rules.model import BarrierKind, Decision, Outcome, Snapshot
from penstock.control.cluster.views.views import MemberState
from penstock.sources.base import PartName
from penstock.streams.model import Brought, PartState
from penstock.streams.registry import Wanted

Parts = Mapping[PartName, PartState]


class StreamState(StrEnum):
    """What a stream does, whatever is wanted of it."""

    STARTING = "starting"
    RUNNING = "running"
    FAILING = "failing"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An instance and the parts that it owns by the current assignment."""

    member: str
    state: MemberState
    leads: bool
    parts: int
    finished: int


@dataclass(frozen=True, slots=True)
class SupervisorView:
    """A command that keeps instances running. ``instances`` is how many it was started with."""

    id: str
    host: str
    pid: int
    instances: int


@dataclass(frozen=True, slots=True)
class SourceView:
    """How far a source is. ``newest`` is its greatest event time, ``lag`` the seconds since then.

    ``problem`` says why its parts cannot be listed; those that are known are read all the same.
    """

    name: str
    parts: int
    finished: int
    newest: str | None = None
    lag: float | None = field(default=None, compare=False)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class OutputView:
    """An output and how far it is. ``batch`` and ``epoch`` are the last ones that its sink took."""

    name: str
    owner: str | None
    batch: int | None
    epoch: int
    behind_epochs: int
    """Committed epochs with rows that it has not taken in."""
    behind_rows: int
    finished: bool
    problem: str
    sink: Mapping[str, str]
    exactly_once: bool | None
    """None where the definition does not say it."""


@dataclass(frozen=True, slots=True)
class RescaleView:
    """The last change of owners. ``moved`` is a share of the parts, ``pause`` seconds without new rows.

    Each is None where what it is computed from is not kept any more.
    """

    version: int
    members: tuple[str, ...]
    moved: float | None
    pause: float | None


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream on one screen. ``rows`` are those of all epochs that ever were, ``bytes`` what is on disk."""

    name: str
    id: str
    state: StreamState
    wanted: Wanted
    reason: str
    """Why it fails, if it does."""
    created: str
    epoch: int
    """The newest committed one; ``oldest`` is the first that is retained."""
    oldest: int
    rows: int
    bytes: int
    late: int
    """The late rows of all epochs, kept or only counted."""
    speed: float | None
    """Rows for each second, over the newest epochs; None while none are driven."""
    queue: float
    """How full the queue is: 1 is its cap, ``queue_bytes``."""
    queue_bytes: int
    held_back: tuple[str, ...]
    """Who is furthest behind and keeps the queue from being emptied, while it is more than half full."""
    instances_wanted: int | None
    leader: str | None
    instances: tuple[InstanceView, ...]
    supervisors: tuple[SupervisorView, ...]
    sources: tuple[SourceView, ...]
    outputs: tuple[OutputView, ...]
    rescale: RescaleView | None

    @property
    def parts(self) -> int:
        return sum(source.parts for source in self.sources)

    @property
    def finished(self) -> int:
        """How many of the parts have finished."""
        return sum(source.finished for source in self.sources)

    @property
    def healthy(self) -> bool:
        """Whether it does what is wanted of it."""
        at_rest = {
            "running": StreamState.RUNNING,
            "suspended": StreamState.SUSPENDED,
            "stopped": StreamState.STOPPED,
        }
        troubled = any(o.problem for o in self.outputs) or any(s.problem for s in self.sources)
        return not troubled and self.state in (StreamState.ENDED, at_rest[self.wanted])


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What the state of a stream follows from."""

    wanted: Wanted
    alive: int
    """Live instances."""
    supervised: bool
    committed: int
    aborted: int
    """The newest epoch that was given up; 0 for none."""
    ended: bool
    """All parts have finished, and every output has taken everything in."""


def judge(facts: StreamFacts) -> StreamState:
    """What a stream does, from outside."""
    if facts.ended:
        return StreamState.ENDED
    if facts.wanted == "stopped":
        return StreamState.STOPPING if facts.alive else StreamState.STOPPED
    if not facts.alive:
        return StreamState.STARTING if facts.supervised else StreamState.STOPPED
    if facts.wanted == "suspended":
        return StreamState.SUSPENDED
    if facts.aborted > facts.committed:
        return StreamState.FAILING
    return StreamState.RUNNING if facts.committed else StreamState.STARTING


def speed(decided: Sequence[Decision]) -> float | None:
    """Rows for each second over committed epochs; None while there are too few of them."""
    committed = [each for each in decided if each.outcome is Outcome.COMMIT]
    times = [_time(each.at) for each in committed]
    if len(committed) < 2 or times[0] is None or times[-1] is None or times[-1] <= times[0]:
        return None
    rows = sum(brought.rows for decision in committed[1:] for brought in brought_by(decision))
    return rows / (times[-1] - times[0]).total_seconds()


def pause(decided: Sequence[Decision], version: int) -> float | None:
    """Seconds between the last ordinary commit before an assignment and the first one under it."""
    ordinary = [d for d in decided if d.outcome is Outcome.COMMIT and d.kind is BarrierKind.EPOCH]
    before = [_time(each.at) for each in ordinary if each.assignment < version]
    after = [_time(each.at) for each in ordinary if each.assignment >= version]
    if not before or not after or before[-1] is None or after[0] is None:
        return None
    return max(0.0, (after[0] - before[-1]).total_seconds())


def moved(before: Snapshot | None, after: Snapshot, parts: Parts) -> float | None:
    """The share of the parts that have another owner than before."""
    if before is None or not before.seats or not after.seats or not parts:
        return None
    changed = sum(
        part_owner(before.seats, name.source, name.part) != part_owner(after.seats, name.source, name.part)
        for name in parts
    )
    return changed / len(parts)


def brought_by(decision: Decision) -> list[Brought]:
    """What the instances brought in an epoch."""
    return [Brought.decode(text) for text in decision.files]


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None

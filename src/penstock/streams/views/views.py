"""What people are shown of a stream, as values: text, JSON and ``--watch`` come from the same ones.

Two views are equal when nothing happened that people want to hear of: that time goes by does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.cluster.views import State as MemberState
from penstock.streams.registry import Wanted


class State(StrEnum):
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
    """How far a source is. ``newest`` is its greatest event time, ``lag`` the seconds since then."""

    name: str
    parts: int
    finished: int
    newest: str | None = None
    lag: float | None = field(default=None, compare=False)


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
    state: State
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
        at_rest = {"running": State.RUNNING, "suspended": State.SUSPENDED, "stopped": State.STOPPED}
        troubled = any(output.problem for output in self.outputs)
        return not troubled and self.state in (State.ENDED, at_rest[self.wanted])


@dataclass(frozen=True, slots=True)
class Facts:
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


def judge(facts: Facts) -> State:
    """What a stream does, from outside."""
    if facts.ended:
        return State.ENDED
    if facts.wanted == "stopped":
        return State.STOPPING if facts.alive else State.STOPPED
    if not facts.alive:
        return State.STARTING if facts.supervised else State.STOPPED
    if facts.wanted == "suspended":
        return State.SUSPENDED
    if facts.aborted > facts.committed:
        return State.FAILING
    return State.RUNNING if facts.committed else State.STARTING

"""What people are shown of a cluster, as values: text, JSON and ``--watch`` come from the same ones.

Two views are equal when nothing happened that people want to hear of: renewals of the lease do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.control.cluster.rules.model import BarrierKind, Outcome, Term


class MemberState(StrEnum):
    """A member as the store judges it. One that is gone is listed until a leader sweeps its entry."""

    ALIVE = "alive"
    LEAVING = "leaving"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Leading:
    """Who leads, and since when by that member's wall clock."""

    member: str
    token: int
    how: str
    since: str
    ttl: float
    sequence: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class LeaderView:
    """The lease, and the terms that are remembered, newest first."""

    cluster: str
    leader: Leading | None
    vacancy: str
    """Why there is no leader; empty if there is one."""
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class MemberView:
    id: str
    role: str
    state: MemberState
    leads: bool
    capacity: int
    vnodes: int
    version: str
    addresses: Mapping[str, str]
    catalog: int | None
    """The version of the catalog that it has replayed; None for one that does not follow it."""
    joined: str


@dataclass(frozen=True, slots=True)
class MembersView:
    cluster: str
    members: tuple[MemberView, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What a member owns. ``per_capacity`` is what compares members of different capacity."""

    member: str
    capacity: int
    vnodes: int
    per_capacity: float


@dataclass(frozen=True, slots=True)
class AssignmentView:
    """A version of the assignment; ``least`` and ``most`` are virtual nodes for each unit of capacity."""

    version: int
    token: int
    hash: str
    vnodes: int
    shares: tuple[Share, ...]
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Move:
    """Virtual nodes that changed their owner; ``source`` is empty where there was none."""

    source: str
    target: str
    vnodes: int


@dataclass(frozen=True, slots=True)
class Rotation:
    """How a version came out of the one before; ``moved`` is None if that one is not kept any more."""

    version: int
    token: int
    members: tuple[str, ...]
    moved: int | None
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class AssignmentsView:
    """The assignment; its history (newest first) and the owner of each virtual node if asked for."""

    cluster: str
    current: AssignmentView
    history: tuple[Rotation, ...] | None = None
    owners: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class OpenBarrier:
    """An epoch that waits for answers. ``gone`` are those of the missing that will not answer."""

    scope: str
    epoch: int
    kind: BarrierKind
    assignment: int
    token: int
    required: tuple[str, ...]
    acked: tuple[str, ...]
    missing: tuple[str, ...]
    gone: tuple[str, ...]
    refused: Mapping[str, str]
    ignored: Mapping[str, int]
    overdue: bool


@dataclass(frozen=True, slots=True)
class Decided:
    """An epoch that ended. ``parts`` and ``files`` are how many it has."""

    scope: str
    epoch: int
    outcome: Outcome
    kind: BarrierKind
    watermark: int | None
    token: int
    assignment: int
    acked: tuple[str, ...]
    reason: str
    seconds: float
    at: str
    ignored: Mapping[str, int]
    parts: int
    files: int


@dataclass(frozen=True, slots=True)
class BarriersView:
    """Open barriers, the newest decisions of each scope, and how many of their acks were ignored, and why."""

    cluster: str
    open: tuple[OpenBarrier, ...]
    decided: tuple[Decided, ...]
    ignored: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EpochsView:
    """Decided epochs, scope by scope, newest first."""

    cluster: str
    epochs: tuple[Decided, ...]


@dataclass(frozen=True, slots=True)
class ScopeView:
    """Where a scope stands. ``aborted`` is the last epoch that was given up, if that is remembered."""

    name: str
    committed: int
    watermark: int | None
    open: OpenBarrier | None
    aborted: Decided | None


@dataclass(frozen=True, slots=True)
class StatusView:
    """The cluster on one screen. ``healthy``: there is a leader and nothing to warn of."""

    store: str
    cluster: str
    healthy: bool
    leader: Leading | None
    vacancy: str
    alive: int
    roles: Mapping[str, int]
    """How many live members there are of each role."""
    leaving: tuple[str, ...]
    gone: tuple[str, ...]
    assignment: AssignmentView
    scopes: tuple[ScopeView, ...]
    catalog: int
    warnings: tuple[str, ...]

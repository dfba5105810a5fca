"""What the control plane knows, as values. Nothing here reads a clock or a store.

One document, the *control*, holds everything that only the leader may change and that must change together:
the lease, the assignment, and where each scope stands. A *scope* is something that moves in epochs: a stream,
or the cluster as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

MAX_CAPACITY = 64


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads. ``owner`` None: nobody does, and the next one need not wait.

    ``sequence`` grows with each write of the lease and is what others watch: a lease whose sequence does not
    change for ``ttl`` seconds *on the watcher's own clock* has expired. ``token`` grows when the owner
    changes, and never else.
    """

    owner: str | None = None
    member: str = ""
    token: int = 0
    sequence: int = 0
    ttl: float = 5.0


@dataclass(frozen=True, slots=True)
class Term:
    """One leader's time, for people to read. ``at`` is the leader's wall clock: nothing is decided by it."""

    token: int
    member: str
    how: str
    at: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """A member as the assignment knows it: under one session, and with its weight."""

    member: str
    session: str
    capacity: int = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Who owns which virtual node, at a version. Version 0 is the empty one before the first.

    Parts and outputs of streams are given to ``seats`` one by one, by their own names. Virtual nodes only
    show people how evenly seats share, and what moves when one comes or goes: nothing is placed on them.
    """

    version: int = 0
    token: int = 0
    seats: tuple[Seat, ...] = ()
    owners: tuple[int, ...] = ()
    """For each virtual node the index of its owner in ``seats``."""
    hash: str = ""

    def seat(self, member: str) -> Seat | None:
        return next((seat for seat in self.seats if seat.member == member), None)

    def vnodes(self, member: str) -> tuple[int, ...]:
        """The virtual nodes that ``member`` owns."""
        return tuple(i for i, index in enumerate(self.owners) if self.seats[index].member == member)


class BarrierKind(StrEnum):
    """What a barrier is for: an ordinary epoch, or to stop everything before owners change."""

    EPOCH = "epoch"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Barrier:
    """An epoch that was announced and is not decided. ``required`` are those who must ack it."""

    epoch: int
    kind: BarrierKind
    assignment: int
    token: int
    required: tuple[Seat, ...]
    request: str = ""
    target: tuple[Seat, ...] = ()
    """For a drain: who will have a seat afterwards, so that owners know what will leave them."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where one scope stands. ``next`` is the number of the next epoch: numbers are never used twice."""

    next: int = 1
    open: Barrier | None = None
    committed: int = 0
    watermark: int | None = None
    worked: int = 0
    """The assignment version under which the last ordinary epoch was announced."""
    drained: tuple[Seat, ...] | None = None
    """The target of a drain that committed, if no ordinary epoch was announced since."""
    aborted: tuple[int, ...] = ()
    """The newest of the epochs that were aborted."""


@dataclass(frozen=True, slots=True)
class Control:
    """The control document. It is replaced as a whole, by compare-and-set."""

    lease: Lease = Lease()
    terms: tuple[Term, ...] = ()
    assignment: Snapshot = Snapshot()
    scopes: Mapping[str, Scope] = field(default_factory=dict)

    def scope(self, name: str) -> Scope:
        return self.scopes.get(name, Scope())

    def with_scope(self, name: str, scope: Scope) -> Control:
        return replace(self, scopes={**self.scopes, name: scope})


@dataclass(frozen=True, slots=True)
class BarrierAck:
    """A member's answer to a barrier: what it has done up to there, or why it refuses.

    ``states`` are by part, ``frontier`` and ``files`` are texts of the scope's own making; what is large goes
    to storage, with its path in here. ``watermark`` None means that the member has no say in it.
    """

    member: str
    session: str
    epoch: int
    assignment: int
    states: Mapping[str, str] = field(default_factory=dict)
    frontier: str | None = None
    files: tuple[str, ...] = ()
    watermark: int | None = None
    refusal: str | None = None

    @property
    def identity(self) -> tuple[str, str, int]:
        return self.member, self.session, self.epoch


class Outcome(StrEnum):
    """How an epoch ended."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Decision:
    """The create-only record that decides an epoch, for all who ever ask.

    ``previous`` is the epoch that was committed before. ``states`` hold those of all parts: the ones that
    were acked, and for parts that nobody acked, what the committed epoch before had.
    """

    epoch: int
    outcome: Outcome
    kind: BarrierKind
    assignment: int
    token: int
    previous: int
    watermark: int | None = None
    reason: str = ""
    acked: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    frontiers: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    at: str = ""
    request: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """An instance that takes part. ``serves`` False: it is only shown, and owns nothing (a batch run's)."""

    id: str
    session: str
    version: str
    capacity: int = 1
    addresses: Mapping[str, str] = field(default_factory=dict)
    role: str = "node"
    serves: bool = True
    leaving: bool = False
    catalog: int = 0
    joined: str = ""

    @property
    def seat(self) -> Seat:
        return Seat(self.id, self.session, self.capacity)

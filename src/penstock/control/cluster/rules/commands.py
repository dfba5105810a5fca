"""What can be asked of the control document. Asked again, each command does nothing twice."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.cluster.rules.model import BarrierKind, Seat, Snapshot


@dataclass(frozen=True, slots=True)
class Acquire:
    """Become the leader, or go on being it. ``expired``: (token, sequence) of the lease seen to run out."""

    owner: str
    member: str
    ttl: float
    expired: tuple[int, int] | None = None
    at: str = ""
    history: int = 64


@dataclass(frozen=True, slots=True)
class Lead:
    """A command of the leader: refused unless ``owner`` still leads with ``token``."""

    owner: str
    token: int


@dataclass(frozen=True, slots=True)
class Resign(Lead):
    """Stop leading, so that the next one need not wait."""


@dataclass(frozen=True, slots=True)
class Prepare(Lead):
    """Announce the next epoch of a scope. ``request`` recognises one whose answer was lost."""

    scope: str
    kind: BarrierKind
    required: tuple[Seat, ...]
    request: str
    target: tuple[Seat, ...] = ()


@dataclass(frozen=True, slots=True)
class Publish(Lead):
    """Make a committed epoch visible. Its record is written before."""

    scope: str
    epoch: int
    watermark: int | None


@dataclass(frozen=True, slots=True)
class Abort(Lead):
    """Give an epoch up. Its record is written before; its number is never used again."""

    scope: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Rotate(Lead):
    """Replace the assignment by the next version, once everything that has owners stands still."""

    snapshot: Snapshot


Command = Acquire | Resign | Prepare | Publish | Abort | Rotate

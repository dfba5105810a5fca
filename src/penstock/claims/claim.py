"""What a caller has in hand."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.claims import commands as c
from penstock.claims.model import CheckpointRef, Grant
from penstock.ranges import Range


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition that a session holds under a token."""

    range: Range
    token: int
    session: str
    owner: str
    attempts: int
    checkpoints: tuple[CheckpointRef, ...]


def as_claim(grant: Grant, command: c.Claim) -> Claim:
    """What ``command`` was granted."""
    return Claim(grant.range, grant.token, command.session, command.owner, grant.attempts, grant.checkpoints)

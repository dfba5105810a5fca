"""Claims in hand: what a caller has, and what was granted, or may have been, and nobody has been told of."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.claims import commands as c
from penstock.control.claims.model import CheckpointRef, Grant
from penstock.core.ranges import Range


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition that a session holds under a token."""

    range: Range
    token: int
    session: str
    owner: str
    attempts: int
    checkpoints: tuple[CheckpointRef, ...]


def as_claim(grant: Grant, command: c.ClaimPartitions) -> Claim:
    """What ``command`` was granted."""
    return Claim(grant.range, grant.token, command.session, command.owner, grant.attempts, grant.checkpoints)


class LooseEnds:
    """What a board owes to its callers, by session and owner. Safe for many threads.

    Whatever is taken out belongs to the taker alone, who puts it back if it comes to nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: deque[tuple[int, c.ClaimPartitions]] = deque()
        self._kept: deque[Claim] = deque()

    def ask_again(self, index: int, command: c.ClaimPartitions) -> None:
        """Note a claim command to a shard whose answer never came."""
        with self._lock:
            self._questions.append((index, command))

    def question(self, session: str, owner: str) -> tuple[int, c.ClaimPartitions] | None:
        """Take out a command of this session and owner that is still to be asked again."""
        with self._lock:
            for question in self._questions:
                if (question[1].session, question[1].owner) == (session, owner):
                    self._questions.remove(question)
                    return question
        return None

    def keep(self, claims: Sequence[Claim]) -> None:
        """Keep claims that were granted and not returned."""
        with self._lock:
            self._kept.extend(claims)

    def kept(self, session: str, owner: str, count: int) -> list[Claim]:
        """Take out up to ``count`` kept claims of this session and owner."""
        with self._lock:
            if not self._kept:
                return []
            found = [claim for claim in self._kept if (claim.session, claim.owner) == (session, owner)]
            for claim in found[:count]:
                self._kept.remove(claim)
        return found[:count]

"""Claims that were granted, or may have been, and that nobody has been told of."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from penstock.claims import commands as c
from penstock.claims.claim import Claim


class LooseEnds:
    """What a board owes to its callers, by session and owner. Safe for many threads.

    Whatever is taken out belongs to the taker alone, who puts it back if it comes to nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: deque[tuple[int, c.Claim]] = deque()
        self._kept: deque[Claim] = deque()

    def ask_again(self, index: int, command: c.Claim) -> None:
        """Note a claim command to a shard whose answer never came."""
        with self._lock:
            self._questions.append((index, command))

    def question(self, session: str, owner: str) -> tuple[int, c.Claim] | None:
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

"""Group commit: commands of many threads share reads, writes and the wait for the disk.

Whoever finds the desk free serves everybody who is queueing. Commands for one shard are applied one
after the other and written as one document; documents are written together. A document that somebody
else changed meanwhile is read again, and its commands are applied again.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.claims.codec import decode, encode
from penstock.control.claims.commands import ClaimPartitions, Command
from penstock.control.claims.geometry import Geometry
from penstock.control.claims.machine import REMEMBERED, apply
from penstock.control.claims.model import Answer, Granted, Refused, Shard
from penstock.errors import StoreUnavailable
from penstock.store.base import Document, Store, Write

_TRIES = 6
_CACHED = 256
# Seconds after which a session is asked about once more before the write that relies on it.
_FRESH = 1.0


@dataclass(slots=True)
class _Ticket:
    """A command on its way. ``answer`` or ``error`` is set when it has been served."""

    index: int
    command: Command
    answer: Answer | None = None
    shard: Shard | None = None
    error: Exception | None = None

    @property
    def served(self) -> bool:
        return self.answer is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class _Known:
    """A shard as it stood at a version of its document; 0 when there was none."""

    version: int
    shard: Shard


class Combiner:
    """Applies commands to the shards of one run. Safe for many threads."""

    def __init__(self, store: Store, prefix: str, geometry: Geometry) -> None:
        self._store = store
        self._prefix = prefix
        self._geometry = geometry
        self._queue: deque[_Ticket] = deque()
        self._desk = threading.Lock()
        self._cache: OrderedDict[int, _Known] = OrderedDict()

    def submit(self, asked: Sequence[tuple[int, Command]]) -> list[tuple[Answer, Shard]]:
        """The answer to each (shard index, command), and the shard as it was left.

        Raises `StoreUnavailable` when the store does not answer for a while. Then it is not known
        what was applied; the same commands, asked again, get the same answers.
        """
        tickets = [_Ticket(index, command) for index, command in asked]
        self._queue.extend(tickets)
        while not all(ticket.served for ticket in tickets):
            with self._desk:
                self._serve()
        return [_outcome(ticket) for ticket in tickets]

    def key(self, index: int) -> str:
        """The key of a shard's document."""
        return f"{self._prefix}{index:09d}"

    def read(self, index: int) -> Shard:
        """A shard as it is now."""
        document = self._store.get(self.key(index))
        return decode(document.value) if document else self.untouched(index)

    def untouched(self, index: int) -> Shard:
        """What an absent document stands for."""
        return Shard(self._geometry.span(index), self._geometry.partition_rows)

    def _serve(self) -> None:
        """Serve all who are in the queue now. Holds the desk."""
        waiting = [self._queue.popleft() for _ in range(len(self._queue))]
        tries = 0
        try:
            while waiting:
                try:
                    self._round(waiting)
                except StoreUnavailable:
                    tries += 1
                    self._cache.clear()
                    if tries == _TRIES:
                        raise
                    time.sleep(random.uniform(0.5, 1) * 0.05 * 2**tries)
                waiting = [ticket for ticket in waiting if not ticket.served]
        except Exception as error:
            # Each asker raises it: the one who serves is not the one whose command failed.
            for ticket in waiting:
                ticket.error = error
        finally:
            # After an interrupt the others serve themselves; their request ids make that harmless.
            self._queue.extendleft(ticket for ticket in reversed(waiting) if not ticket.served)

    def _round(self, waiting: Sequence[_Ticket]) -> None:
        """One reading, one writing.

        Those whose document changed, or whose session ended, in the meantime stay unserved.
        """
        groups: dict[int, list[_Ticket]] = {}
        for ticket in waiting:
            group = groups.setdefault(ticket.index, [])
            if len(group) < REMEMBERED:
                group.append(ticket)
        cached = {index: self._cache[index] for index in groups if index in self._cache}
        known = cached | self._fetch([index for index in groups if index not in cached])
        alive = _Judge(self._store)
        changed: list[tuple[int, Shard, list[_Ticket], list[Answer]]] = []
        for index, group in groups.items():
            shard, answers = _apply_all(known[index].shard, group, alive)
            if index in cached and not _conclusive(group, answers, shard, cached[index].shard):
                # What was remembered may be old: a denial must come from the document itself.
                known |= self._fetch([index])
                shard, answers = _apply_all(known[index].shard, group, alive)
            if shard is known[index].shard:
                _answer(group, answers, shard)
            else:
                changed.append((index, shard, group, answers))
        if not changed:
            return
        writes = [Write(self.key(i), known[i].version, encode(shard)) for i, shard, _, _ in changed]
        if not alive.holds():
            return
        versions = self._store.cas_many(writes)
        for version, (index, shard, group, answers) in zip(versions, changed, strict=True):
            if version is None:
                self._cache.pop(index, None)
            else:
                self._remember(index, _Known(version, shard))
                _answer(group, answers, shard)

    def _fetch(self, indexes: list[int]) -> dict[int, _Known]:
        if not indexes:
            return {}
        documents = self._store.get_many([self.key(index) for index in indexes])
        found = {i: self._known(i, d) for i, d in zip(indexes, documents, strict=True)}
        for index, known in found.items():
            self._remember(index, known)
        return found

    def _known(self, index: int, document: Document | None) -> _Known:
        if document is None:
            return _Known(0, self.untouched(index))
        known = self._cache.get(index)
        if known is not None and known.version == document.version:
            return known
        return _Known(document.version, decode(document.value))

    def _remember(self, index: int, known: _Known) -> None:
        self._cache[index] = known
        self._cache.move_to_end(index)
        if len(self._cache) > _CACHED:
            self._cache.popitem(last=False)


class _Judge:
    """Asks the store about each session once per round, after the documents were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._verdicts: dict[str, bool] = {}
        self._began = time.monotonic()

    def __call__(self, session: str) -> bool:
        verdict = self._verdicts.get(session)
        if verdict is None:
            verdict = self._verdicts[session] = bool(self._store.alive([session]))
        return verdict

    def holds(self) -> bool:
        """Whether those who were alive still are.

        They are asked only if it took long, since a process that was stopped may have outlived its lease.
        """
        living = [session for session, alive in self._verdicts.items() if alive]
        if not living or time.monotonic() - self._began <= _FRESH:
            return True
        return len(self._store.alive(living)) == len(living)


def _apply_all(shard: Shard, group: Sequence[_Ticket], alive: _Judge) -> tuple[Shard, list[Answer]]:
    answers = []
    for ticket in group:
        shard, answer = apply(shard, ticket.command, alive)
        answers.append(answer)
    return shard, answers


def _conclusive(group: Sequence[_Ticket], answers: Sequence[Answer], after: Shard, before: Shard) -> bool:
    """Whether answers from a remembered shard can stand: the write will prove that it is not old."""
    if after is before:
        return False
    for ticket, answer in zip(group, answers, strict=True):
        if isinstance(answer, Refused):
            return False
        wanted = ticket.command.count if isinstance(ticket.command, ClaimPartitions) else 0
        if isinstance(answer, Granted) and len(answer.grants) < wanted:
            return False
    return True


def _answer(group: Sequence[_Ticket], answers: Sequence[Answer], shard: Shard) -> None:
    for ticket, answer in zip(group, answers, strict=True):
        ticket.shard, ticket.answer = shard, answer


def _outcome(ticket: _Ticket) -> tuple[Answer, Shard]:
    if ticket.error is not None:
        raise ticket.error
    if ticket.answer is None or ticket.shard is None:
        raise RuntimeError("a command was not served")
    return ticket.answer, ticket.shard

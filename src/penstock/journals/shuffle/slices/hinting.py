"""What the acks that a slice reads hint at, for all sources of a stream that have to wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from penstock.errors import PenstockError
from penstock.journals.format.uuids import Flag
from penstock.journals.shuffle.sequencing.columns import Lines
from penstock.journals.shuffle.sequencing.groups import Groups, hints_of
from penstock.journals.shuffle.visibility.frontier import Mark
from penstock.journals.shuffle.visibility.joint import MOST, Acks, Joint, gathered, joint
from penstock.sources.journals import JournalSource

_Clocks: TypeAlias = dict[tuple[str, int], int]
"""By journal and producer."""


class Hints:
    """The newest hints, by source, journal and producer."""

    def __init__(self, sources: Mapping[str, JournalSource]) -> None:
        self._sources = sources
        self._hints: dict[str, _Clocks] = {}
        self._acks: dict[str, _Clocks] = {}
        self._joint: set[Joint] = set()

    def note(self, source: str, lines: Lines, groups: Groups) -> None:
        """The hints of acks that commit something. A hint names a journal below the same root.

        An ack also hints at itself, for the other sources that read its journal.
        """
        known = np.array([each.last_commit for each in groups.before], np.uint64)
        is_new = (lines.stamps.flag == Flag.ACK) & (lines.stamps.clock > known[groups.group])
        found, acks = self._hints.setdefault(source, {}), self._acks.setdefault(source, {})
        for number in np.flatnonzero(is_new).tolist():
            journal = lines.journals[lines.journal[number]]
            own = journal, int(lines.stamps.producer[number])
            if len(self._sources) > 1:
                acks[own] = max(acks.get(own, 0), int(lines.stamps.clock[number]))
            try:
                hints = _newest(hints_of(lines.line(number), journal))
            except PenstockError as error:
                raise type(error)(f"{lines.where(number)}: {error.what}", hint=error.hint) from error
            for key, clock in hints.items():
                if clock > found.get(key, 0):
                    found[key] = clock
            if any(producer != own[1] for _, producer in hints):
                self._note_joint(source, {own: int(lines.stamps.clock[number])}, hints)

    def marks(self) -> Iterator[tuple[str, Mark]]:
        """What acks hint at, for all sources of their cohort that read the journal."""
        for source, found in self._hints.items():
            for name in self._sources:
                # A hint says what its journal is called below the root, an ack where it stands itself.
                if self._sources[name].journals.is_at(self._sources[source].journals):
                    yield from self._seen_by(name, source, found)
                if name != source:
                    yield from self._seen_by(name, source, self._acks[source])

    def joints(self) -> tuple[Joint, ...]:
        """The transactions of several producers, with the acks that their cohort has to wait for."""
        return gathered(self._joint)

    def _note_joint(self, source: str, ack: _Clocks, hints: _Clocks) -> None:
        acks: list[Acks] = []
        for name in self._sources:
            is_hinted = self._sources[name].journals.is_at(self._sources[source].journals)
            for found in (ack, hints) if is_hinted else (ack,):
                seen = self._seen_by(name, source, found)
                acks += (Acks(at, mark.producer, mark.hinted_commit, mark.hinted_commit) for at, mark in seen)
        self._joint.add(joint(acks))
        if len(self._joint) > 2 * MOST:
            self._joint = set(gathered(self._joint))

    def _seen_by(
        self, name: str, source: str, found: Mapping[tuple[str, int], int]
    ) -> Iterator[tuple[str, Mark]]:
        """Acks in journals of ``source``, as another source has to wait for them."""
        own, other = self._sources[source], self._sources[name]
        if other.cohort != own.cohort:
            return
        for (journal, producer), clock in found.items():
            seen = own.journals.name_below(other.journals, journal)
            if seen is not None and other.matches(seen):
                yield f"{name}/{seen}", Mark(producer, 0, clock, 0)


def _newest(hints: Iterable[tuple[tuple[str, int], int]]) -> _Clocks:
    found: _Clocks = {}
    for key, clock in hints:
        found[key] = max(clock, found.get(key, 0))
    return found

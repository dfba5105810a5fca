"""All parts of a stream, as those read them who are given parts to own."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from penstock.core.codec import DocumentFormat
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.ingest.finished_parts import FinishedParts, read_stated
from penstock.streams.model import PartState, Standing

if TYPE_CHECKING:
    from penstock.streams.api.stream import SourceSpec

Parts = Mapping[PartName, PartState]


@dataclass(frozen=True, slots=True)
class Announced:
    """What an instance tells the others: parts that it found, by source, and those to forget."""

    sources: Mapping[str, tuple[str, ...]]
    forgotten: tuple[tuple[str, str], ...] = ()


ANNOUNCED = DocumentFormat(
    Announced, "a list of parts that were found", omits=("forgotten",), ignores_unknown=True
)


@dataclass(frozen=True, slots=True)
class PartLists:
    """What a committed epoch knows of parts.

    ``states`` are those of the parts that go on, ``found`` are parts that were found in that epoch and have
    no state yet. ``reopened`` are sources whose finished parts may have more rows by now. ``queues`` are
    those of journals, with what is known of their event time.
    """

    states: Parts
    found: frozenset[PartName]
    finished_parts: FinishedParts
    reopened: frozenset[str] = frozenset()
    grown: Mapping[str, SourceSpec] = field(default_factory=dict)
    """Sources that are described otherwise than when parts of them finished."""
    queues: Parts = field(default_factory=dict)

    @classmethod
    def read(
        cls, storage: Storage, standings: Collection[Standing], sources: Mapping[str, SourceSpec]
    ) -> Self:
        states: dict[PartName, PartState] = {}
        queues: dict[PartName, PartState] = {}
        for standing in standings:
            if standing.states is not None:
                own, own_queues = read_stated(storage, standing.states)
                states |= own
                queues |= own_queues
        # Once, those that had finished stood among the others.
        done = {name: known for name, known in states.items() if known.finished}
        all_finished = [FinishedParts.read(storage, standing.finished) for standing in standings]
        finished_parts = FinishedParts.union([*all_finished, FinishedParts(done)])
        found, _ = announced(storage, standings)
        names = frozenset(PartName(source, part) for source, parts in found.items() for part in parts)
        going_on = {name: known for name, known in states.items() if name not in done}
        grown = {
            name: spec
            for name, spec in sources.items()
            if name in finished_parts.places and finished_parts.places[name] != described(spec)
        }
        reopened = frozenset(n for n, spec in grown.items() if spec.source.reopens(finished_parts.places[n]))
        return cls(going_on, names - going_on.keys(), finished_parts, reopened, grown, queues)

    @property
    def sources(self) -> set[str]:
        """The sources of all parts that are known here."""
        return {name.source for name in (*self.states, *self.found)} | self.finished_parts.places.keys()

    def open(self, storage: Storage) -> Parts:
        """The parts that go on, and those that begin or begin again."""
        found = {name: PartState() for name in self.found}
        if found or self.reopened:
            for name, known in self.finished_parts.parts(storage):
                found.pop(name, None)
                if name.source in self.reopened:
                    found[name] = PartState(known.state)
        return {**found, **self.states}

    def listed(self, storage: Storage, sources: Collection[str]) -> dict[str, set[str]]:
        """All parts of these sources that ever were."""
        listed: dict[str, set[str]] = {source: set() for source in sources}
        for name in (*self.states, *self.found):
            if name.source in listed:
                listed[name.source].add(name.part)
        for name, _ in self.finished_parts.parts(storage) if listed else ():
            if name.source in listed:
                listed[name.source].add(name.part)
        return listed

    def kept(self, storage: Storage) -> FinishedParts:
        """The finished parts without those that begin again."""
        if not self.reopened:
            return self.finished_parts
        places = {
            name: place for name, place in self.finished_parts.places.items() if name not in self.reopened
        }
        left = {n: known for n, known in self.finished_parts.parts(storage) if n.source not in self.reopened}
        return FinishedParts(left, (), places)

    def passed_over(self) -> Iterator[str]:
        """What people should know of sources that changed since parts of them had finished."""
        for name in sorted(self.grown.keys() - self.reopened):
            yield (
                f"source {name} is described otherwise than when parts of it finished: those are not read "
                "again, whatever they have now; new parts are"
            )


def announced(
    storage: Storage, standings: Iterable[Standing]
) -> tuple[dict[str, frozenset[str]], frozenset[PartName]]:
    """The parts that were found in an epoch, by source, and those that were forgotten."""
    union: dict[str, frozenset[str]] = {}
    forgotten: set[PartName] = set()
    for standing in standings:
        if standing.listing is not None:
            told = standing.listing.read(storage, ANNOUNCED)
            for source, parts in told.sources.items():
                union[source] = union.get(source, frozenset()) | frozenset(parts)
            forgotten.update(PartName(source, part) for source, part in told.forgotten)
    return union, frozenset(forgotten)


def described(spec: SourceSpec) -> dict[str, Any]:
    """What a source says of itself, as files have it."""
    found: dict[str, Any] = json.loads(json.dumps(dict(spec.source.describe())))
    return found

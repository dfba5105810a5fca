"""How far a stream has read its journals, seen from outside."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.errors import UsageError
from penstock.journals import Journals
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.journals.shuffle.visibility.frontier import (
    Frontier,
    project_unresolved_hints,
    reduce,
    unresolved,
)
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.store.base import Store
from penstock.streams import registry
from penstock.streams.ingest.finished_parts import read_states
from penstock.streams.ingest.journal_states import position_of
from penstock.streams.ingest.part_lists import ANNOUNCED
from penstock.streams.ingest.shuffle_files import read_session
from penstock.streams.model import SCOPE, Standing


@dataclass(frozen=True, slots=True)
class JournalView:
    """A journal: ``head`` is None where it is not there any more, ``open`` counts open transactions."""

    source: str
    journal: str
    position: JournalPosition
    head: int | None

    @property
    def behind(self) -> int:
        """The bytes that were not read yet."""
        return max(0, self.head - self.position.offset) if self.head is not None else 0

    @property
    def open(self) -> int:
        return sum(each.sequence.is_open for each in self.position.producers.values())


@dataclass(frozen=True, slots=True)
class FrontierView:
    """Where a stream stands after ``epoch``.

    ``waiting`` are bytes that were read and are not visible yet. ``frontier`` has the marks of all producers,
    and the hints that were found.
    """

    stream: str
    epoch: int
    journals: tuple[JournalView, ...]
    waiting: int
    frontier: Frontier

    @property
    def behind(self) -> int:
        return sum(each.behind for each in self.journals)

    @property
    def awaited(self) -> tuple[tuple[str, int, int], ...]:
        """Journal, producer and clock of the hints that were not reached yet."""
        return tuple(unresolved(self.frontier))


def look(store: Store, storage: Storage, name: str) -> FrontierView:
    """The frontier of a stream; `UsageError` if there is no such stream, or it reads no journals."""
    record = registry.load(store, name)
    sources = record.definition.get("sources", {})
    roots = {source: told["place"]["journals"] for source, told in sources.items() if _has_journals(told)}
    if not roots:
        raise UsageError(f"stream {name} reads no journals", hint="see `penstock stream status`")
    keys = Keys(record.layout.cluster)
    committed = Room(store, keys).read().scope(SCOPE).committed
    decision = Records(store, keys).decision(SCOPE, committed)
    standings = [Standing.decode(text) for text in decision.frontiers.values()] if decision else []
    session, _, reports = read_session(storage, standings)
    heads = {source: _heads(root, sources[source]["place"]) for source, root in roots.items()}
    positions = _positions(storage, standings, roots)
    names = sorted({*positions, *_listed(storage, standings, roots)})
    views = tuple(
        JournalView(n.source, n.part, positions.get(n, JournalPosition()), heads[n.source].get(n.part))
        for n in names
    )
    files = (*session.waiting, *(file for each in reports for file in (*each.files, *each.held)))
    hints = [session.awaited, *(project_unresolved_hints(report.progress) for report in reports)]
    frontier = functools.reduce(reduce, hints, _marks(views))
    return FrontierView(name, committed, views, sum(file.record.bytes for file in files), frontier)


def _marks(views: Iterable[JournalView]) -> Frontier:
    """Where each producer stands in each journal."""
    return Frontier.of(
        (f"{each.source}/{each.journal}", standing.mark(producer))
        for each in views
        for producer, standing in each.position.producers.items()
    )


def _has_journals(told: Mapping[str, Any]) -> bool:
    return "journals" in told.get("place", {})


def _heads(root: str, place: Mapping[str, Any]) -> dict[str, int]:
    return {each.journal: each.head for each in Journals(root).summaries(str(place.get("prefix", "")))}


def _listed(storage: Storage, standings: list[Standing], sources: Mapping[str, object]) -> Iterator[PartName]:
    for standing in standings:
        if standing.listing is not None:
            for source, parts in standing.listing.read(storage, ANNOUNCED).sources.items():
                yield from (PartName(source, part) for part in parts if source in sources)


def _positions(
    storage: Storage, standings: list[Standing], sources: Mapping[str, object]
) -> dict[PartName, JournalPosition]:
    found = {}
    for standing in standings:
        # A journal never finishes.
        states = read_states(storage, standing.states) if standing.states is not None else {}
        for name, known in states.items():
            if name.source in sources:
                found[name] = position_of(str(name), known.state)
    return found

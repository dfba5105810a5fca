"""Rules of a stream's worker, each broken in one place. The oracle must notice every one of them.

Not here, because another rule protects as well: an instance that answers although it was fenced. Its session
is over, so that its answer counts nowhere (`penstock.control.cluster.participant.Participation`). Nor one
that says the end in the epoch in which its parts finish: who lists says it after a committed epoch tells so
of all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock.control.cluster.participant import EpochWork
from penstock.control.cluster.rules.model import Barrier, Decision, Snapshot
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.api.stream import SourceSpec
from penstock.streams.ingest import takeover, watermarks
from penstock.streams.ingest.epoch_files import EpochFiles, Stated
from penstock.streams.ingest.finished_parts import FinishedParts
from penstock.streams.ingest.holding import Holding, Parts
from penstock.streams.ingest.part_listing import Listings
from penstock.streams.ingest.part_lists import PartLists
from penstock.streams.ingest.part_owners import PartOwners
from penstock.streams.ingest.takeover import Takeover
from penstock.streams.ingest.worker import StreamWorker
from penstock.streams.model import END, OPEN, Pointer, Standing

Mutant = Callable[[], Iterator[None]]
MUTANTS: dict[str, Callable[[], Any]] = {}
_assigned, _committed, _drain = StreamWorker.assigned, StreamWorker.committed, StreamWorker._drain
_listed_of, _read_lists, _lows_of = PartLists.listed, PartLists.read, watermarks.Lows.of
_begin, _list, _is_mine = Listings.begin, Listings.found, PartOwners.is_mine
_write_states, _write_finished = EpochFiles.states, EpochFiles.finished

_AGO = -1

Listed = tuple[Mapping[str, frozenset[str]], bool | None]


def _mutant(change: Mutant) -> Mutant:
    MUTANTS[change.__name__] = contextmanager(change)
    return change


@_mutant
def finished_is_forgotten_on_a_move() -> Iterator[None]:
    def listed(each: PartLists, storage: Storage, sources: Collection[str]) -> dict[str, set[str]]:
        return _listed_of(replace(each, finished_parts=FinishedParts()), storage, sources)

    with patch.object(PartLists, "listed", listed):
        yield


@_mutant
def finished_parts_are_kept_by_nobody_after_a_move() -> Iterator[None]:
    with patch.object(PartLists, "kept", lambda each, storage: FinishedParts()):
        yield


@_mutant
def states_of_one_member_only() -> Iterator[None]:
    def read(storage: Storage, standings: Sequence[Standing], sources: Mapping[str, SourceSpec]) -> PartLists:
        return _read_lists(storage, standings[:1], sources)

    with patch.object(PartLists, "read", read):
        yield


@_mutant
def goes_on_from_what_was_given_up() -> Iterator[None]:
    with patch.object(StreamWorker, "aborted", StreamWorker.committed):
        yield


@_mutant
def files_are_deleted_although_they_are_needed() -> Iterator[None]:
    def committed(each: StreamWorker, epoch: int) -> None:
        each._discard(epoch)
        _committed(each, epoch)

    with patch.object(StreamWorker, "committed", committed):
        yield


@_mutant
def finished_parts_are_not_written_again() -> Iterator[None]:
    def write(
        each: EpochFiles, epoch: int, known: Pointer | None, before: FinishedParts, parts: Parts
    ) -> tuple[Pointer | None, FinishedParts]:
        return (known, before) if known else _write_finished(each, epoch, known, before, parts)

    with patch.object(EpochFiles, "finished", write):
        yield


@_mutant
def states_are_not_written_again() -> Iterator[None]:
    def write(
        each: EpochFiles, epoch: int, known: Pointer | None, before: Stated, now: Stated
    ) -> Pointer | None:
        return known or _write_states(each, epoch, known, before, now)

    with patch.object(EpochFiles, "states", write):
        yield


@_mutant
def end_with_a_listing_that_began_too_early() -> Iterator[None]:
    def begin(each: Listings, version: int, newest: Mapping[str, int], finished: int | None) -> None:
        if finished is None:
            _begin(each, version, newest, _AGO)

    def listed(each: Listings, finished: int | None, *, settled: bool) -> Listed:
        found, complete = _list(each, _AGO, settled=settled)
        return found, complete and finished is not None

    with patch.object(Listings, "begin", begin), patch.object(Listings, "found", listed):
        yield


@_mutant
def end_while_the_others_have_parts() -> Iterator[None]:
    def watermark(each: StreamWorker, before: Holding, complete: bool | None) -> int | None:
        return None if complete is None else END if not before.parts else OPEN

    with patch.object(StreamWorker, "_watermark", watermark):
        yield


@_mutant
def growing_sources_end() -> Iterator[None]:
    def listed(each: Listings, finished: int | None, *, settled: bool) -> Listed:
        grows = {name: spec.source.grows for name, spec in each._sources.items()}
        for spec in each._sources.values():
            spec.source.grows = False
        try:
            return _list(each, finished, settled=settled)
        finally:
            for name, spec in each._sources.items():
                spec.source.grows = grows[name]

    with patch.object(Listings, "found", listed):
        yield


@_mutant
def new_parts_are_told_when_the_epoch_before_was_given_up() -> Iterator[None]:
    def listed(each: Listings, finished: int | None, *, settled: bool) -> Listed:
        found, complete = _list(each, finished, settled=settled)
        for name, parts in found.items():
            each.known[name] |= parts
        return found, complete

    with patch.object(Listings, "found", listed):
        yield


@_mutant
def no_listing_in_a_drain() -> Iterator[None]:
    def drain(each: StreamWorker, barrier: Barrier) -> EpochWork:
        work = _drain(each, barrier)
        if work.frontier is None:
            return work
        return replace(work, frontier=replace(Standing.decode(work.frontier), listing=None).encode())

    with patch.object(StreamWorker, "_drain", drain):
        yield


@_mutant
def drain_answers_before_anything_was_committed() -> Iterator[None]:
    def drain(each: StreamWorker, barrier: Barrier) -> EpochWork:
        each._holding = replace(each._holding, settled=True)
        return _drain(each, barrier)

    with patch.object(StreamWorker, "_drain", drain):
        yield


@_mutant
def late_behind_the_newest_row() -> Iterator[None]:
    def advanced(standings: Collection[Standing], lateness: Mapping[str, int]) -> dict[str, int]:
        newest = watermarks.latest(each.newest for each in standings)
        return {name: value - lateness[name] for name, value in newest.items() if name in lateness}

    with patch.object(takeover, "advanced", advanced):
        yield


@_mutant
def watermark_is_forgotten_on_a_move() -> Iterator[None]:
    def assigned(each: StreamWorker, snapshot: Snapshot, committed: Decision | None) -> None:
        _assigned(each, snapshot, committed)
        each._holding = replace(each._holding, standing=replace(each._holding.standing, watermark={}))

    with patch.object(StreamWorker, "assigned", assigned):
        yield


@_mutant
def parts_that_were_not_read_hold_nothing_back() -> Iterator[None]:
    def of(each: watermarks.Lows, parts: Parts, awaited: Collection[PartName] = ()) -> dict[str, int]:
        read = {name: known for name, known in parts.items() if known.newest is not None}
        return _lows_of(each, read, awaited)

    with patch.object(watermarks.Lows, "of", of):
        yield


@_mutant
def times_of_parts_are_forgotten_in_a_drain() -> Iterator[None]:
    def drain(each: StreamWorker, barrier: Barrier) -> EpochWork:
        parts = {name: replace(known, newest=1 << 60) for name, known in each._holding.parts.items()}
        each._holding = replace(each._holding, parts=parts)
        return _drain(each, barrier)

    with patch.object(StreamWorker, "_drain", drain):
        yield


@_mutant
def whoever_lists_reads() -> Iterator[None]:
    def is_mine(each: PartOwners, name: PartName) -> bool:
        return _is_mine(each, name) or each.is_lister(name.source)

    with patch.object(PartOwners, "is_mine", is_mine):
        yield


@_mutant
def old_parts_are_kept() -> Iterator[None]:
    def assigned(each: StreamWorker, snapshot: Snapshot, committed: Decision | None) -> None:
        before = each._holding.parts
        _assigned(each, snapshot, committed)
        each._holding = replace(each._holding, parts={**before, **each._holding.parts})

    with patch.object(StreamWorker, "assigned", assigned):
        yield


@_mutant
def new_parts_are_not_picked_up() -> Iterator[None]:
    with patch.object(Takeover, "caught_up", lambda each, holding: holding):
        yield

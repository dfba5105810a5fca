"""Rules of a stream's worker, each broken in one place. The oracle must notice every one of them.

Not here, because another rule protects as well: an instance that answers although it was fenced. Its session
is over, so that its answer counts nowhere (`penstock.cluster.participant.Participation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock.cluster.model import Barrier, Decision, Snapshot
from penstock.cluster.participant import Work
from penstock.sources.parts import PartName
from penstock.storage import Storage
from penstock.streams import worker
from penstock.streams.books import Books
from penstock.streams.ingest import Polled
from penstock.streams.model import END, OPEN, PartState, Pointer, Standing
from penstock.streams.worker import Holding, StreamWorker

Mutant = Callable[[], Iterator[None]]
MUTANTS: dict[str, Callable[[], Any]] = {}
_states, _assigned, _catch_up = worker._states, StreamWorker.assigned, StreamWorker._catch_up
_drain, _list, _poll = StreamWorker._drain, StreamWorker._list, StreamWorker._poll
_is_mine, _committed = StreamWorker._is_mine, StreamWorker.committed
_write_states, _write_finished = Books.states, Books.finished

Listed = tuple[Mapping[str, frozenset[str]], bool | None]


def _mutant(change: Mutant) -> Mutant:
    MUTANTS[change.__name__] = contextmanager(change)
    return change


@_mutant
def finished_is_forgotten_on_a_move() -> Iterator[None]:
    def states(standings: Iterable[Standing], storage: Storage) -> dict[PartName, PartState]:
        return {n: replace(known, finished=False) for n, known in _states(standings, storage).items()}

    with patch.object(worker, "_states", states):
        yield


@_mutant
def states_of_one_member_only() -> Iterator[None]:
    with patch.object(worker, "_states", lambda standings, storage: _states(list(standings)[:1], storage)):
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
        each: Books, epoch: int, known: Pointer | None, before: worker.Parts, parts: worker.Parts
    ) -> Pointer | None:
        return known or _write_finished(each, epoch, known, before, parts)

    with patch.object(Books, "finished", write):
        yield


@_mutant
def states_are_not_written_again() -> Iterator[None]:
    def write(
        each: Books, epoch: int, known: Pointer | None, before: worker.Parts, parts: worker.Parts
    ) -> Pointer | None:
        return known or _write_states(each, epoch, known, before, parts)

    with patch.object(Books, "states", write):
        yield


@_mutant
def end_without_looking_at_the_source() -> Iterator[None]:
    def listed(each: StreamWorker, holding: Holding) -> Listed:
        known = {n: holding.listed.get(n, frozenset()) for n in each._sources if each._is_lister(n)}
        grows = any(each._sources[name].source.grows for name in known)
        if known and holding.standing.listing and not holding.open and not grows:
            return known, True
        return _list(each, holding)

    with patch.object(StreamWorker, "_list", listed):
        yield


@_mutant
def end_in_the_epoch_in_which_parts_finish() -> Iterator[None]:
    polled: dict[StreamWorker, Polled] = {}

    def poll(each: StreamWorker, holding: Holding, barrier: Barrier) -> Polled:
        polled[each] = _poll(each, holding, barrier)
        return polled[each]

    def watermark(each: StreamWorker, before: Holding, complete: bool | None) -> int | None:
        after = replace(before, parts={**before.parts, **polled[each].states})
        if complete is None and not after.parts:
            return None
        return END if complete is not False and not after.open else OPEN

    with patch.object(StreamWorker, "_poll", poll), patch.object(StreamWorker, "_watermark", watermark):
        yield


@_mutant
def end_while_the_others_have_parts() -> Iterator[None]:
    def watermark(each: StreamWorker, before: Holding, complete: bool | None) -> int | None:
        return None if complete is None else END if complete and not before.open else OPEN

    with patch.object(StreamWorker, "_watermark", watermark):
        yield


@_mutant
def growing_sources_end() -> Iterator[None]:
    def listed(each: StreamWorker, holding: Holding) -> Listed:
        found, complete = _list(each, holding)
        known = {name: holding.listed.get(name, frozenset()) for name in found}
        return found, found == known if complete is not None else None

    with patch.object(StreamWorker, "_list", listed):
        yield


@_mutant
def no_listing_in_a_drain() -> Iterator[None]:
    def drain(each: StreamWorker, barrier: Barrier) -> Work:
        work = _drain(each, barrier)
        if work.frontier is None:
            return work
        return replace(work, frontier=replace(Standing.decode(work.frontier), listing=None).encode())

    with patch.object(StreamWorker, "_drain", drain):
        yield


@_mutant
def drain_answers_before_anything_was_committed() -> Iterator[None]:
    def drain(each: StreamWorker, barrier: Barrier) -> Work:
        each._holding = replace(each._holding, settled=True)
        return _drain(each, barrier)

    with patch.object(StreamWorker, "_drain", drain):
        yield


@_mutant
def late_behind_the_own_rows_only() -> Iterator[None]:
    def catch_up(each: StreamWorker) -> None:
        newest = each._holding.standing.newest
        _catch_up(each)
        standing = replace(each._holding.standing, newest=newest)
        each._holding = replace(each._holding, standing=standing)

    with patch.object(StreamWorker, "_catch_up", catch_up):
        yield


@_mutant
def newest_is_forgotten_on_a_move() -> Iterator[None]:
    def assigned(each: StreamWorker, snapshot: Snapshot, committed: Decision | None) -> None:
        _assigned(each, snapshot, committed)
        each._holding = replace(each._holding, standing=replace(each._holding.standing, newest={}))

    with patch.object(StreamWorker, "assigned", assigned):
        yield


@_mutant
def whoever_lists_reads() -> Iterator[None]:
    def is_mine(each: StreamWorker, name: PartName) -> bool:
        return _is_mine(each, name) or each._is_lister(name.source)

    with patch.object(StreamWorker, "_is_mine", is_mine):
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
    with patch.object(StreamWorker, "_catch_up", lambda each: None):
        yield

"""An instance's part in a stream's epochs: it polls the parts it owns and says where they stand.

What it knows comes from the committed epoch alone: the list of all parts, which one instance makes and
everybody follows one epoch later, and the states of its own parts. So every instance agrees on who reads
what, and the end of the stream is said only when nobody has anything left.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from penstock.cluster.assignment import check_hash, part_owner
from penstock.cluster.model import Barrier, Decision, Kind, Seat, Snapshot
from penstock.cluster.participant import Participant, Work
from penstock.errors import SessionLost, SourceFailed, StreamError
from penstock.failpoints import reach
from penstock.sources.parts import PartName
from penstock.storage import Storage
from penstock.streams.allowance import Allowance
from penstock.streams.books import Books
from penstock.streams.ingest import Ingestion, Limits, Polled
from penstock.streams.layout import Layout
from penstock.streams.model import END, OPEN, PartState, Pointer, Standing
from penstock.streams.shuffling import NOTHING, Hunger, Shuffle, ShuffleWork

if TYPE_CHECKING:
    from penstock.streams.stream import SourceSpec

_log = logging.getLogger(__name__)

_HURRY = 0.5
_MICRO = 1_000_000
_LISTINGS_KEPT = 16

Parts = Mapping[PartName, PartState]


@dataclass(frozen=True, slots=True)
class Holding:
    """What an instance owns as of an epoch."""

    parts: Parts = field(default_factory=dict)
    standing: Standing = field(default_factory=Standing)
    listed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """All parts that are known, by source."""
    settled: bool = False
    """Whether an epoch was committed since it was assigned."""

    @property
    def open(self) -> Parts:
        return _open(self.parts)


@dataclass(frozen=True, slots=True)
class Former:
    """Who owned parts before the owners changed, and when they committed their last epoch."""

    seats: tuple[Seat, ...]
    at: float


class StreamWorker(Participant):
    """The participant of a stream.

    ``since`` reads from the store what was committed last, if that is a later epoch than the one it is given.
    """

    def __init__(
        self,
        member: str,
        sources: Mapping[str, SourceSpec],
        ingestion: Ingestion,
        storage: Storage,
        layout: Layout,
        allowance: Allowance,
        list_every: float,
        since: Callable[[int], Decision | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._member = member
        self._sources = sources
        self._ingestion = ingestion
        self._storage = storage
        self._layout = layout
        self._allowance = allowance
        self._list_every = list_every
        self._since = since
        self._clock = clock
        self._books = Books(storage, layout, member)
        self._version = 0
        self._seats: tuple[Seat, ...] = ()
        self._former: Former | None = None
        self._committed_at: float | None = None
        self._ordinary = 0
        self._asked: dict[PartName, int] = {}
        self._holding = Holding()
        self._next: Holding | None = None
        self._known = 0
        self._listed_at = -inf
        self._listings: dict[Pointer, Mapping[str, frozenset[str]]] = {}
        self._fence = threading.Event()
        self._shuffle = Shuffle(sources, storage)

    @property
    def shuffle(self) -> Shuffle:
        return self._shuffle

    @property
    def holding(self) -> Holding:
        """What this instance owned as of the last committed epoch that it took part in."""
        return self._holding

    @property
    def former(self) -> Former | None:
        """What was before the owners changed last, if this instance took part in it."""
        return self._former

    # the control plane's calls

    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        self._fence.clear()
        self._next, self._holding = None, Holding()
        check_hash(snapshot)
        self._remember(snapshot)
        if not self._seats or snapshot.seat(self._member) is None:
            return
        standings = _standings(committed)
        listed = _union(self._listing(standing) for standing in standings)
        states = _states(standings, self._storage)
        names = {PartName(source, part) for source, parts in listed.items() for part in parts} | states.keys()
        self._check_sources(name.source for name in names)
        mine = {name: states.get(name, PartState()) for name in names if self._is_mine(name)}
        known = committed.epoch if committed else 0
        self._shuffle.follow(standings, known)
        # Whatever states these are, they go into a file of this instance's own with its next answer.
        self._holding = Holding(mine, Standing(None, None, _newest(standings)), listed)
        self._known = known
        self._listed_at = -inf
        self._asked = {name: epoch for name, epoch in self._asked.items() if name in mine}

    def prepare(self, barrier: Barrier) -> Work:
        try:
            if barrier.kind is Kind.DRAIN:
                return self._drain(barrier)
            self._catch_up()
            return self._epoch(barrier)
        except Exception:
            # The answer is a refusal, so nothing will ever refer to what was written.
            self._discard(barrier.epoch)
            raise

    def patience(self) -> float:
        return self._shuffle.patience

    def committed(self, epoch: int) -> None:
        if self._next is not None:
            self._holding, self._next = self._next, None
        if epoch == self._ordinary:
            self._committed_at = self._clock()

    def aborted(self, epoch: int) -> None:
        self._next = None
        # What was found may not have been heard of.
        self._listed_at = -inf
        self._discard(epoch)

    def fenced(self) -> None:
        self._fence.set()
        self._ingestion.cancel()
        self._next = None
        self._holding = Holding()
        self._committed_at = None

    def _remember(self, snapshot: Snapshot) -> None:
        if snapshot.version != self._version:
            at = self._committed_at
            self._former = Former(self._seats, at) if at is not None else None
        self._version, self._seats = snapshot.version, snapshot.seats

    # an epoch

    def _epoch(self, barrier: Barrier) -> Work:
        before, self._ordinary = self._holding, barrier.epoch
        polled = self._poll(before, barrier)
        listed, complete = self._list(before)
        parts = {**before.parts, **polled.states}
        newest = _merged([before.standing.newest, _newest_rows(polled)])
        standing, epoch, books = before.standing, barrier.epoch, self._books
        standing = Standing(
            books.states(epoch, standing.states, before.parts, parts),
            books.listing(epoch, standing.listing, before.listed, listed),
            newest,
            books.finished(epoch, standing.finished, before.parts, parts),
            self._report(polled, parts, epoch),
            self._write_session(epoch),
        )
        brought = books.portion(epoch, polled)
        self._check_fence()
        self._next = Holding(parts, standing, before.listed, settled=True)
        reach("stream.prepared")
        return Work(
            frontier=standing.encode(),
            files=(brought.encode(),) if brought else (),
            watermark=self._watermark(before, complete),
        )

    def _poll(self, holding: Holding, barrier: Barrier) -> Polled:
        limits = self._allowance.limits(len(barrier.required), self._shuffle.bytes)
        parts, work = self._divided(holding, barrier, self._hunger(limits))
        if limits is None:
            parts = {}
        if not parts and not work:
            return Polled({})
        prefix = f"{self._layout.epoch_rows(barrier.epoch)}/{self._books.own}"
        thresholds = {
            name: newest - round(spec.timestamps.lateness * _MICRO)
            for name, newest in holding.standing.newest.items()
            if (spec := self._sources[name]).timestamps is not None
        }
        polled = self._ingestion.poll(
            prefix, parts, limits or self._allowance.least, thresholds, self._asked, work
        )
        self._shuffle.heard(work, polled.states, polled.unfinished, polled.unasked)
        reach("stream.polled")
        self._asked.update(dict.fromkeys(polled.states, barrier.epoch))
        self._allowance.learn(polled)
        return polled

    def _hunger(self, limits: Limits | None) -> Hunger:
        """Which journals may be read.

        Where there is no room because of documents that wait for others, these are read; where it is because
        nobody took out what is visible, nothing is.
        """
        if limits is not None:
            return "awaited" if self._shuffle.is_crowded else "all"
        return "awaited" if self._allowance.is_filled_by(self._shuffle.bytes) else "none"

    def _divided(self, holding: Holding, barrier: Barrier, hunger: Hunger) -> tuple[Parts, ShuffleWork]:
        """The parts that are polled, and what is done for journals."""
        if not self._shuffle:
            return holding.open, NOTHING
        if self._shuffle.epoch != self._known:
            raise StreamError(f"the shuffle stands at epoch {self._shuffle.epoch}, not {self._known}")
        journals = {name: known for name, known in holding.open.items() if self._shuffle.is_journal(name)}
        parts = {name: known for name, known in holding.open.items() if name not in journals}
        prefix = f"{self._layout.epoch_runs(barrier.epoch)}/{self._books.own}"
        self._shuffle.forget()

        def owns(source: str, queue: str) -> bool:
            return part_owner(self._seats, source, queue) == self._member

        return parts, self._shuffle.work(barrier.epoch, prefix, journals, owns, hunger)

    def _report(self, polled: Polled, parts: Parts, epoch: int) -> Pointer | None:
        """What slices of this instance did."""
        if not self._shuffle:
            return None
        report = self._shuffle.report(epoch, polled.progress, polled.runs, parts)
        pointer = self._books.report(epoch, report)
        if pointer is not None:
            self._shuffle.wrote(pointer, report)
        return pointer

    def _write_session(self, epoch: int) -> Pointer | None:
        """Where the shuffle stands, if this instance is the one to write it down."""
        if not self._shuffle or part_owner(self._seats, "", "session") != self._member:
            return None
        if self._shuffle.known is not None:
            return self._shuffle.known
        pointer = self._books.session(epoch, self._shuffle.session)
        self._shuffle.wrote(pointer, self._shuffle.session)
        return pointer

    def _discard(self, epoch: int) -> None:
        self._books.discard(epoch, self._holding.standing.pointers)

    def _watermark(self, before: Holding, complete: bool | None) -> int | None:
        """What this instance has to say about the end. None: it has no part in it.

        ``complete``: whether the sources that it lists have no parts that nobody knows yet; None: it lists
        none. Parts must have finished *before* this epoch: of one that finishes while another instance lists
        the source, nobody knows whether it left others behind.
        """
        if complete is None and not before.parts:
            return None
        return END if complete is not False and not before.open else OPEN

    # the list of parts

    def _list(self, holding: Holding) -> tuple[Mapping[str, frozenset[str]], bool | None]:
        """All parts of the sources that this instance lists, and whether there is no new one.

        See `_watermark`.
        """
        mine = [name for name in self._sources if self._is_lister(name)]
        if not mine:
            return {}, None
        known = {name: holding.listed.get(name, frozenset()) for name in mine}
        pause = self._list_every if holding.open else min(self._list_every, _HURRY)
        if self._clock() < self._listed_at + pause:
            return known, False
        found = {name: known[name] | self._parts_of(name) for name in mine}
        self._listed_at = self._clock()
        ends = all(not self._sources[name].source.grows for name in mine)
        return found, ends and found == known and bool(holding.standing.listing)

    def _parts_of(self, name: str) -> frozenset[str]:
        try:
            found = self._sources[name].source.list_parts()
            parts = [found] if isinstance(found, str) else list(found)
        except Exception as error:
            raise SourceFailed(
                f"source {name}: list_parts failed: {type(error).__name__}: {error}",
                left="the epoch was not committed, and is tried again",
            ) from error
        for part in parts:
            if isinstance(found, str) or not _is_name(part):
                raise SourceFailed(
                    f"source {name}: list_parts returned {part!r}, and not a list of names",
                    left="the epoch was not committed, and is tried again",
                    hint="a name is a text that is not empty and can be written as UTF-8",
                )
        return frozenset(parts)

    def _is_lister(self, source: str) -> bool:
        return part_owner(self._seats, source, "") == self._member

    def _is_mine(self, name: PartName) -> bool:
        return part_owner(self._seats, name.source, name.part) == self._member

    def _check_sources(self, names: Iterable[str]) -> None:
        unknown = sorted(set(names) - self._sources.keys())
        if unknown:
            raise StreamError(
                f"the stream has parts of {', '.join(unknown)}, which this instance does not know",
                hint="run the same definition of the stream on all instances",
            )

    # what others did meanwhile

    def _catch_up(self) -> None:
        """Take over what the last committed epoch brought: new parts, and the newest event time of all."""
        decision = self._since(self._known)
        if decision is None:
            return
        standings = _standings(decision)
        listed = _union([self._holding.listed, *(self._listing(standing) for standing in standings)])
        self._check_sources(source for source, parts in listed.items() if parts)
        fresh = {
            name: PartState()
            for source, parts in listed.items()
            for part in parts - self._holding.listed.get(source, frozenset())
            if (name := PartName(source, part)) not in self._holding.parts and self._is_mine(name)
        }
        newest = _merged([self._holding.standing.newest, _newest(standings)])
        parts = {**self._holding.parts, **fresh} if fresh else self._holding.parts
        standing = replace(self._holding.standing, newest=newest)
        # What can fail comes first: an epoch that was taken over by half would never be looked at again.
        self._shuffle.follow(standings, decision.epoch)
        self._holding = replace(self._holding, parts=parts, standing=standing, listed=listed)
        self._known = decision.epoch

    def _listing(self, standing: Standing) -> Mapping[str, frozenset[str]]:
        """The parts that ``standing`` points to.

        A list is read once: there is a new one only when it grew.
        """
        pointer = standing.listing
        if pointer is None:
            return {}
        if pointer not in self._listings:
            found = pointer.read(self._storage)["sources"]
            if len(self._listings) >= _LISTINGS_KEPT:
                self._listings.clear()
            self._listings[pointer] = {name: frozenset(parts) for name, parts in found.items()}
        return self._listings[pointer]

    # moving

    def _drain(self, barrier: Barrier) -> Work:
        """Collect the parts that will leave, and stand still."""
        before = self._holding
        if not before.settled:
            # What was committed under the owners before still says where every part stands, also those of
            # members that died since. An answer of ours would replace a piece of that.
            self._check_fence()
            return Work()
        leaving = {
            name: known
            for name, known in before.open.items()
            if barrier.target
            and part_owner(barrier.target, name.source, name.part) != self._member
            # The state of a journal is all there is of it.
            and not self._shuffle.is_journal(name)
        }
        polled = self._ingestion.collect(leaving) if leaving else Polled({})
        parts = {**before.parts, **polled.states}
        standing = before.standing
        states = self._books.states(barrier.epoch, standing.states, before.parts, parts)
        finished = self._books.finished(barrier.epoch, standing.finished, before.parts, parts)
        standing = replace(standing, states=states, finished=finished)
        self._check_fence()
        self._next = replace(before, parts=parts, standing=standing)
        reach("stream.drained")
        return Work(frontier=standing.encode())

    def _check_fence(self) -> None:
        if self._fence.is_set():
            raise SessionLost("the instance was given up by the others while it worked on an epoch")


def _is_name(part: object) -> bool:
    try:
        return isinstance(part, str) and bool(part.encode())
    except UnicodeEncodeError:
        return False


def _standings(decision: Decision | None) -> list[Standing]:
    return [Standing.decode(text) for text in decision.frontiers.values()] if decision else []


def _states(standings: Iterable[Standing], storage: Storage) -> dict[PartName, PartState]:
    states = {}
    for standing in standings:
        for pointer in standing.parts:
            for text, (state, finished) in pointer.read(storage)["parts"].items():
                states[PartName.parse(text)] = PartState(state, finished)
    return states


def _open(parts: Parts) -> Parts:
    return {name: known for name, known in parts.items() if not known.finished}


def _newest(standings: Iterable[Standing]) -> dict[str, int]:
    return _merged(standing.newest for standing in standings)


def _newest_rows(polled: Polled) -> dict[str, int]:
    return _merged({file.source: file.newest} for file in polled.files if file.newest is not None)


def _merged(each: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The greatest of each source."""
    merged: dict[str, int] = {}
    for newest in each:
        for source, value in newest.items():
            merged[source] = max(value, merged.get(source, value))
    return merged


def _union(each: Iterable[Mapping[str, frozenset[str]]]) -> dict[str, frozenset[str]]:
    union: dict[str, frozenset[str]] = {}
    for listed in each:
        for source, parts in listed.items():
            union[source] = union.get(source, frozenset()) | parts
    return union

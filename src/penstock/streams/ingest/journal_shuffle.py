"""An instance's part in the shuffle of journals: what its slices read, and which queues it fills.

In an epoch, slices read and write runs; the next epoch shows what the coordinator says may be seen. What that
is follows from the last committed epoch alone, so that all instances agree on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.errors import StreamError
from penstock.journals.format.uuids import Ticker
from penstock.journals.shuffle.queues.queues import Show
from penstock.journals.shuffle.queues.run_files import RunFile
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.journals.shuffle.visibility import coordinator
from penstock.journals.shuffle.visibility.coordinator import Promotion, ShuffleState, SliceReport
from penstock.journals.shuffle.visibility.frontier import Frontier, reduce
from penstock.sources.base import PartName
from penstock.sources.journals import JournalSource
from penstock.storage import Storage
from penstock.streams.api.sources import SourceSpec
from penstock.streams.ingest.journal_states import held, position_of, queue_name, state_of
from penstock.streams.ingest.pacing import Resting
from penstock.streams.ingest.shuffle_files import read_session
from penstock.streams.ingest.waiting_journals import UnfinishedLines, check_acks
from penstock.streams.model import PartState, Pointer, Standing

_log = logging.getLogger(__name__)

_REMEMBERED = 4
_FILES = 2000
_SHOWN_PER_SECOND = 8 << 20
"""What a queue is filled with at the least, on a slow machine."""


@dataclass(frozen=True, slots=True)
class ShuffleWork:
    """What an instance does for journals in one epoch."""

    epoch: int = 0
    prefix: str = ""
    reads: Mapping[PartName, str | None] = field(default_factory=dict)
    """The state of each journal, as it is stored."""
    shows: tuple[Show, ...] = ()
    queues: tuple[tuple[str, int], ...] = ()
    now: int = 0

    def __bool__(self) -> bool:
        return bool(self.reads) or bool(self.shows and self.queues)


NOTHING = ShuffleWork()
Parts = Mapping[PartName, PartState]
JournalsToRead = Literal["all", "awaited", "none"]
"""Which journals are read: all, those that the waiting cut waits for, or none."""


class JournalShuffle:
    """The journals of a stream, as one instance sees them."""

    def __init__(
        self, sources: Mapping[str, SourceSpec], storage: Storage, clock: Callable[[], float] = time.time
    ) -> None:
        self._sources = journal_sources(sources)
        self._storage = storage
        self._clock = clock
        self._ticker = Ticker()
        self._resting = Resting()
        self._session = ShuffleState()
        self._awaited = Frontier()
        self._promotions: tuple[Promotion, ...] = ()
        self._spent: tuple[str, ...] = ()
        self._held: tuple[RunFile, ...] = ()
        self._unfinished = UnfinishedLines(clock)
        self._on_their_way: frozenset[PartName] | None = None
        self._known: Pointer | None = None
        self._written: dict[Pointer, ShuffleState | SliceReport] = {}
        self._epoch = 0

    def __bool__(self) -> bool:
        return bool(self._sources)

    @property
    def session(self) -> ShuffleState:
        """Where the shuffle stands after the epoch that was followed last."""
        return self._session

    @property
    def epoch(self) -> int:
        """The epoch that was followed last."""
        return self._epoch

    @property
    def known(self) -> Pointer | None:
        """The file that says where the shuffle stands, if nothing has changed since it was written."""
        return self._known

    @property
    def bytes(self) -> int:
        """What run files take, and what their documents will take in the queue before these are deleted."""
        files = {*self._session.waiting, *(promotion.file for promotion in self._promotions), *self._held}
        return 2 * sum(file.record.bytes for file in files)

    @property
    def on_their_way(self) -> frozenset[PartName]:
        """The queues, of whatever owner, for which there are documents that were read and are not visible."""
        if self._on_their_way is None:
            shown = (promotion.file for promotion in self._promotions)
            self._on_their_way = frozenset(
                PartName(file.source, queue_name(run.queue))
                for file in {*self._session.waiting, *shown, *self._held}
                for run in file.runs
            )
        return self._on_their_way

    @property
    def patience(self) -> float:
        """How many seconds more the next epoch may take: what becomes visible with it must do so at once."""
        return sum(promotion.file.record.bytes for promotion in self._promotions) / _SHOWN_PER_SECOND

    @property
    def is_crowded(self) -> bool:
        """Whether no more run files should wait than do: every epoch reads the list of them."""
        return len(self._session.waiting) >= _FILES

    def is_journal(self, name: PartName) -> bool:
        return name.source in self._sources

    def begin_of(self, name: PartName, floors: Mapping[str, int]) -> PartState:
        """Where a part begins that nobody knew: a journal may be one that was forgotten."""
        floor = floors.get(name.source, 0) if self.is_journal(name) else 0
        return state_of(name, JournalPosition(floor=floor)) if floor else PartState()

    def is_needed(self, name: PartName, at: PartState) -> bool:
        """Whether somebody waits for a journal, or a piece of a transaction of it is on its way."""
        return str(name) in self._awaited.journals or bool(held(name, at))

    def follow(self, standings: Iterable[Standing], epoch: int) -> None:
        """Take over what ``epoch`` committed."""
        if not self._sources:
            return
        before, known, reports = read_session(self._storage, list(standings), self._written)
        self._check_cohorts(before)
        self._session, self._promotions = coordinator.advance(
            before, reports, epoch, self._clock(), self._cohort_of
        )
        self._awaited = self._session.awaited
        self._spent = before.spent
        self._held = tuple(file for report in reports for file in report.held)
        self._on_their_way = None
        self._epoch = epoch
        is_same = not self._promotions and not before.spent and all(r.epoch <= before.taken for r in reports)
        self._known = known if is_same else None

    def forget(self) -> None:
        """Delete run files of which everything is visible since the last committed epoch."""
        try:
            for path in self._spent:
                self._storage.delete(path)
            for folder in {path.rpartition("/")[0] for path in self._spent}:
                self._storage.remove_empty(folder)
        except OSError as error:
            _log.warning("run files that are spent were not deleted, and are swept later: %s", error)
        self._spent = ()

    def check_hints(self, patience: float, known: Collection[PartName]) -> None:
        """Raise `HintNotReached` if documents wait for what was not read for that many seconds.

        ``known`` are the parts of the stream.
        """
        # A transaction that is being handed on stands still at its ack, and others wait for that.
        busy = {file.source for file in self._held}
        stalled = self._session.stalled(self._clock(), patience)
        awaited = [each for each in stalled if each[0].partition("/")[0] not in busy]
        check_acks(self._sources, awaited, known)

    def check_lines(self, patience: float) -> None:
        """Raise `LineUnfinished` if journals of this instance end in the middle of a line for so long."""
        self._unfinished.check(patience)

    def work(
        self,
        epoch: int,
        prefix: str,
        parts: Mapping[PartName, PartState],
        owns: Callable[[str, str], bool],
        to_read: JournalsToRead,
    ) -> ShuffleWork:
        """What to do in an epoch with these journals; ``owns`` says whether a queue of a source is ours.

        Without room in the queue only journals are read that transactions wait for, or with one that is on
        its way: what has been read of these takes room until then.
        """
        awaited = self._awaited.journals if to_read == "all" else self._session.blocking.journals
        awake = self._resting.awake(parts) if to_read == "all" else [n for n in parts if held(n, parts[n])]
        wanted = {*awake, *(name for name in parts if str(name) in awaited)} if to_read != "none" else ()
        reads = {name: parts[name].state for name in sorted(wanted)}
        self._unfinished.keep(parts)
        queues = tuple(
            (name, queue)
            for name in self._sources
            for queue in range(self._queues(name))
            if owns(name, queue_name(queue))
        )
        shows = tuple(Show.each(self._promotions))
        return ShuffleWork(epoch, prefix, reads, shows, queues, self._ticker.tick())

    def queues(self, owns: Callable[[str, str], bool], known: Mapping[PartName, PartState]) -> Parts:
        """Our queues, for their event time alone, with what is ``known`` of it.

        The state of a queue is how documents are routed to it. If that has changed, it has other keys than
        before, and nobody knows how far these have come.
        """
        found: dict[PartName, PartState] = {}
        for name, source in self._sources.items():
            routing = f"{source.queues} {' '.join(source.key)}"
            for queue in map(queue_name, range(self._queues(name))):
                if owns(name, queue):
                    before = known.get(PartName(name, queue), PartState())
                    found[PartName(name, queue)] = before if before.state == routing else PartState(routing)
        return found

    def wrote(self, pointer: Pointer, what: ShuffleState | SliceReport) -> None:
        """Remember what is in a file of this instance: most often it is what is read next."""
        self._written[pointer] = what
        while len(self._written) > _REMEMBERED:
            del self._written[next(iter(self._written))]

    def heard(
        self,
        work: ShuffleWork,
        states: Mapping[PartName, PartState],
        unfinished: Mapping[PartName, int],
        unasked: Collection[PartName],
    ) -> None:
        """Take note of the journals that had nothing new, and of lines whose ends are not there yet."""
        self._resting.heard(work.reads, {*states, *unasked})
        self._unfinished.heard(work.reads, unfinished)

    def report(
        self,
        epoch: int,
        progress: Frontier,
        files: tuple[RunFile, ...],
        parts: Mapping[PartName, PartState],
        owns: Callable[[str, str], bool],
        floors: Mapping[str, int],
    ) -> SliceReport:
        """What this instance did in an epoch, after which ``parts`` are the states of its journals.

        A journal that it ``owns`` and does not know may have been forgotten. If it comes, it begins with the
        floor of its source: nothing up to there can be read of it, and nobody need wait for that.
        """

        def commits(journal: str, producer: int) -> int:
            name = PartName.parse(journal)
            known = parts.get(name)
            if known is None:
                known = self.begin_of(name, floors) if owns(name.source, name.part) else PartState()
            return position_of(str(name), known.state).sequence(producer).last_commit

        told = reduce(progress, coordinator.reached(self._awaited, commits, progress))
        kept = (file for name, at in parts.items() if self.is_journal(name) for file in held(name, at))
        return SliceReport(epoch, told, files, tuple(kept))

    def _queues(self, source: str) -> int:
        """How many queues there are: the source may have been given fewer since they were written."""
        files = (each.file for each in self._promotions if each.file.source == source)
        shown = max((run.queue + 1 for file in files for run in file.runs), default=0)
        return max(self._sources[source].queues, shown)

    def _check_cohorts(self, session: ShuffleState) -> None:
        """Raise `StreamError` if documents wait in a cohort that there is no more."""
        known = set(map(self._cohort_of, self._sources))
        for name, cuts in session.cuts.items():
            if name not in known and (cuts.unresolved is not None or cuts.ahead):
                raise StreamError(
                    "priority or read delay of a source was changed while parts of transactions wait",
                    left="what was read is kept",
                    hint="change them back until `penstock journal frontier` shows that nothing waits",
                )

    def _cohort_of(self, source: str) -> str:
        known = self._sources.get(source)
        return "" if known is None else f"{known.priority} {known.read_delay:g}"


def journal_sources(sources: Mapping[str, SourceSpec]) -> dict[str, JournalSource]:
    """Those of a stream's sources that read journals."""
    return {name: spec.source for name, spec in sources.items() if isinstance(spec.source, JournalSource)}

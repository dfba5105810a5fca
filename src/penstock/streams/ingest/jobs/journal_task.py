"""What one task of an epoch does for journals: it fills queues, and reads a slice of the journals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.journals.shuffle.queues.queues import Show, documents
from penstock.journals.shuffle.queues.run_files import RunFile, RunWriter
from penstock.journals.shuffle.slices.slices import Slice, SliceLimits
from penstock.journals.shuffle.visibility.frontier import Frontier
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.ingest.jobs.intake import Intake
from penstock.streams.ingest.journal_shuffle import ShuffleWork, journal_sources
from penstock.streams.ingest.journal_states import position_of, queue_name, state_of
from penstock.streams.model import PartState

if TYPE_CHECKING:
    from penstock.streams.api.sources import SourceSpec


@dataclass(frozen=True, slots=True)
class Sliced:
    """What a slice did: where journals stand now, what it wrote, and how far producers have come."""

    states: Mapping[PartName, PartState]
    files: tuple[RunFile, ...]
    progress: Frontier
    read: int = 0
    """Bytes of journals."""
    unasked: frozenset[PartName] = frozenset()
    """Those that had not their turn, or could not be read to their end."""
    unfinished: Mapping[PartName, int] = field(default_factory=dict)
    """Where lines begin whose ends are not there yet."""
    behind: frozenset[PartName] = frozenset()
    """Those of which there is more to read now."""


@dataclass(frozen=True, slots=True)
class JournalTask:
    """A task's share of the work."""

    epoch: int
    prefix: str
    reads: Mapping[PartName, str | None]
    shows: tuple[Show, ...]
    queues: tuple[tuple[str, int], ...]
    now: int

    def show(self, sources: Mapping[str, SourceSpec], storage: Storage, intake: Intake) -> None:
        """Merge what becomes visible, queue by queue."""
        for source, queue in self.queues:
            shows = [show for show in self.shows if show.file.source == source]
            for batch in documents(storage, shows, queue):
                intake.take(sources[source], queue_name(queue), batch)
            intake.next_file(source)

    def read(
        self,
        sources: Mapping[str, SourceSpec],
        storage: Storage,
        limits: SliceLimits,
        unique: str,
        codec: str | None,
    ) -> Sliced:
        """Read this task's journals."""
        if not self.reads:
            return Sliced({}, (), Frontier())
        with RunWriter(storage, f"{self.prefix}-{unique}", self.epoch, codec) as writer:
            slice_ = Slice(journal_sources(sources), writer, limits, self.now)
            slice_.read({read: position_of(str(read), state) for read, state in self.reads.items()})
        states = {name: state_of(name, at) for name, at in slice_.positions.items()}
        return Sliced(
            states,
            slice_.files,
            slice_.progress,
            slice_.bytes,
            slice_.unasked,
            slice_.unfinished,
            slice_.behind,
        )


def journal_tasks(work: ShuffleWork, most: int) -> Iterator[JournalTask]:
    """The work in as many tasks as can run at once; a queue is filled by one of them."""
    if not work:
        return
    reads, queues = sorted(work.reads), work.queues if work.shows else ()
    count = max(1, min(most, max(len(reads), len(queues))))
    for number in range(count):
        mine = {read: work.reads[read] for read in reads[number::count]}
        yield JournalTask(work.epoch, work.prefix, mine, work.shows, queues[number::count], work.now)

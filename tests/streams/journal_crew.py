"""A crew whose workers read real journals, without Spark: tasks run one after the other in the test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.control.cluster.rules.model import Decision, Scope, Snapshot
from penstock.journals.shuffle.queues.run_files import RunFile
from penstock.journals.shuffle.slices.slices import SliceLimits
from penstock.journals.shuffle.visibility.frontier import Frontier, reduce
from penstock.sources import JournalSource
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.api.stream import SourceSpec, Timestamps
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.jobs.intake import Intake
from penstock.streams.ingest.jobs.journal_task import journal_tasks
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.journal_shuffle import NOTHING, ShuffleWork
from penstock.streams.ingest.pacing import Allowance
from penstock.streams.ingest.worker import StreamWorker
from penstock.streams.model import Brought, PartState, RowFile, Standing
from tests.streams.support import LAYOUT, ROOMY, Clock, Crew, MemoryIngestion

TASKS = 2


class JournalIngestion(MemoryIngestion):
    """Does what the tasks of an epoch do for journals."""

    done = 0

    def poll(
        self,
        prefix: str,
        parts: Mapping[PartName, PartState],
        limits: PollLimits,
        thresholds: Mapping[str, int],
        asked: Mapping[PartName, int],
        shuffle: ShuffleWork = NOTHING,
        within: float | None = None,
    ) -> Polled:
        states: dict[PartName, PartState] = {}
        files, runs, progress = list[RowFile](), list[RunFile](), Frontier()
        unfinished: dict[PartName, int] = {}
        unasked, behind = set[PartName](), set[PartName]()
        newest: dict[PartName, int] = {}
        share = limits.share(TASKS)
        for number, task in enumerate(journal_tasks(shuffle, TASKS)):
            self.done += 1
            unique = f"{number}-{self.done}"
            with Intake(self._storage, f"{prefix}-{unique}", None, thresholds) as intake:
                task.show(self._sources, self._storage, intake)
            files += intake.written
            newest |= intake.newest
            bounds = SliceLimits(max(1, share.bytes // 2), share.rows, share.seconds)
            sliced = task.read(self._sources, self._storage, bounds, unique, None)
            states |= sliced.states
            runs += sliced.files
            progress = reduce(progress, sliced.progress)
            unfinished |= sliced.unfinished
            unasked |= sliced.unasked
            behind |= sliced.behind
        return Polled(
            states,
            tuple(files),
            newest,
            runs=tuple(runs),
            progress=progress,
            unasked=frozenset(unasked),
            unfinished=unfinished,
            behind=frozenset(behind),
        )


class JournalCrew(Crew):
    """Members that read journals, below a folder."""

    def __init__(
        self,
        folder: Path,
        *members: str,
        cap: int = ROOMY,
        timestamps: Timestamps | None = None,
        **sources: JournalSource,
    ) -> None:
        self.cap = cap
        self.folder = folder
        self.sources = {name: SourceSpec(name, source, timestamps) for name, source in sources.items()}
        self.storage: Any = Storage(folder)
        self.list_every = 0.0
        self.clock = Clock()
        self.workers, self.ingestions = {}, {}
        self.snapshot, self.scope = Snapshot(), Scope()
        self.decision: Decision | None = None
        self.chain = []
        self._versions: dict[str, int] = {}
        self._sessions = 0
        self.seat(*members)

    def start(self, member: str) -> StreamWorker:
        ingestion = JournalIngestion(self.sources, self.storage)
        allowance = Allowance(
            PollLimits(100_000, 1 << 20, 5.0), lambda: self.cap - self.queue_bytes(), self.cap
        )
        worker = StreamWorker(
            member,
            self.sources,
            ingestion,
            self.storage,
            LAYOUT,
            allowance,
            0.0,
            self._since,
            self.clock,
            run=lambda work: work(),
        )
        self.workers[member], self.ingestions[member] = worker, ingestion
        self._versions[member] = 0
        return worker

    def shown(self) -> list[tuple[int, int]]:
        """The ids of all visible documents, each with its epoch."""
        found = []
        for epoch, file in self._files():
            with self.storage.open(file.record.path) as opened:
                ids = pa.ipc.open_file(opened).read_all()["id"].to_pylist()
            found += [(id_, epoch) for id_ in ids]
        return found

    def standings(self) -> list[Standing]:
        """What the last committed epoch says of its members."""
        return [Standing.decode(text) for text in self.chain[-1].frontiers.values()] if self.chain else []

    def late(self) -> list[int]:
        """The ids of all visible documents that came too late."""
        found: list[int] = []
        for _, file in self._files():
            if file.late:
                with self.storage.open(file.record.path) as opened:
                    found += pa.ipc.open_file(opened).read_all()["id"].to_pylist()
        return found

    def ids(self) -> list[int]:
        return sorted(id_ for id_, _ in self.shown())

    def queue_bytes(self) -> int:
        return sum(file.record.bytes for _, file in self._files())

    def _files(self) -> list[tuple[int, RowFile]]:
        return [
            (decision.epoch, file)
            for decision in self.chain
            for text in decision.files
            for file in Brought.decode(text).files(self.storage)
        ]

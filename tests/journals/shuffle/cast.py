"""Members that shuffle journals epoch by epoch, without Spark: slices, a coordinator and queues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.journals.shuffle.queues.queues import Show, documents
from penstock.journals.shuffle.queues.run_files import RunFile, RunWriter
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.journals.shuffle.slices.slices import Slice, SliceLimits
from penstock.journals.shuffle.visibility.coordinator import (
    Promotion,
    ShuffleState,
    SliceReport,
    advance,
    reached,
)
from penstock.journals.shuffle.visibility.frontier import reduce
from penstock.sources.base import PartName
from penstock.sources.journals import JournalSource
from penstock.storage import Storage

LATER = 1 << 63


@dataclass
class Cast:
    """``members`` that share journals; ``visible`` has by epoch and queue what was shown."""

    folder: Path
    sources: Mapping[str, JournalSource]
    members: int = 2
    limits: SliceLimits = field(default_factory=lambda: SliceLimits(1 << 20, 1 << 20, 60.0))
    paces: Mapping[str, int] = field(default_factory=dict)
    """How many bytes are read of the journals of a source in an epoch, where that is limited."""
    now: int = LATER
    epoch: int = 0
    positions: dict[PartName, JournalPosition] = field(default_factory=dict)
    state: ShuffleState = field(default_factory=ShuffleState)
    reports: list[SliceReport] = field(default_factory=list)
    visible: dict[int, dict[tuple[str, int], pa.Table]] = field(default_factory=dict)
    bytes: int = 0

    def __post_init__(self) -> None:
        self.storage = Storage(self.folder)

    def run(self, *, fails: bool = False) -> None:
        """One epoch. If it fails, all that it did is forgotten."""
        state, promotions = advance(self.state, self.reports, self.epoch, 0.0, self.cohort_of)
        state = ShuffleState.from_json(json.loads(json.dumps(state.to_json())))
        shown = self.show(promotions)
        before = {
            PartName(name, journal): self.positions.get(PartName(name, journal), JournalPosition())
            for name, source in self.sources.items()
            for journal in source.list_parts()
            if self.paces.get(name, 1)
        }
        reports, after = [], dict(self.positions)
        for member, mine in enumerate(self.shares(before)):
            report, positions = self.slice(member, mine, state, fails)
            reports.append(SliceReport.from_json(json.loads(json.dumps(report.to_json()))))
            after |= {
                read: JournalPosition.from_state(json.loads(json.dumps(at.to_state())))
                for read, at in positions.items()
            }
        if not fails:
            self.epoch += 1
            self.state, self.reports, self.positions = state, reports, after
            self.visible[self.epoch] = shown

    def shares(self, reads: Mapping[PartName, JournalPosition]) -> list[dict[PartName, JournalPosition]]:
        """What each member reads; with paces, each a source."""
        if self.paces:
            return [{r: at for r, at in reads.items() if r.source == name} for name in self.sources]
        return [{read: reads[read] for read in sorted(reads)[n :: self.members]} for n in range(self.members)]

    def slice(
        self, member: int, mine: Mapping[PartName, JournalPosition], state: ShuffleState, fails: bool
    ) -> tuple[SliceReport, dict[PartName, JournalPosition]]:
        epoch = self.epoch + 1
        with RunWriter(self.storage, f"runs/{epoch}-{member}-{'x' if fails else 'o'}", epoch, None) as writer:
            pace = self.paces.get(next(iter(mine)).source) if self.paces and mine else None
            limits = self.limits if pace is None else replace(self.limits, bytes=pace)
            slice_ = Slice(self.sources, writer, limits, self.now)
            slice_.read(mine)
        self.bytes += slice_.bytes
        positions = {**mine, **slice_.positions}

        def commits(journal: str, producer: int) -> int:
            source, _, name = journal.partition("/")
            return positions.get(PartName(source, name), JournalPosition()).sequence(producer).last_commit

        told = reduce(slice_.progress, reached(state.awaited, commits))
        files: tuple[RunFile, ...] = slice_.files
        return SliceReport(epoch, told, files), slice_.positions

    def show(self, promotions: tuple[Promotion, ...]) -> dict[tuple[str, int], pa.Table]:
        shown = {}
        for name, source in self.sources.items():
            shows = list(Show.each(each for each in promotions if each.file.source == name))
            for queue in range(source.queues):
                batches = list(documents(self.storage, shows, queue))
                if batches:
                    shown[name, queue] = pa.Table.from_batches(batches)
        return shown

    def cohort_of(self, source: str) -> str:
        return str(self.sources[source].cohort)

    def settle(self, most: int = 50) -> None:
        """Go on until nothing is left to show."""
        for _ in range(most):
            before = self.positions
            self.run()
            idle = not any(report.files or report.progress.journals for report in self.reports)
            if idle and self.positions == before and not self.state.waiting and not self.visible[self.epoch]:
                return

    def rows(self) -> list[dict[str, Any]]:
        return [
            row | {"epoch": epoch, "queue": queue}
            for epoch, shown in self.visible.items()
            for queue, table in shown.items()
            for row in table.to_pylist()
        ]

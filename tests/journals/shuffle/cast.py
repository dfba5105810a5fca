"""Members that shuffle journals epoch by epoch, without Spark: slices, a session and queues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.shuffle.frontier import reduce
from penstock.shuffle.positions import Position
from penstock.shuffle.queues import Show, documents
from penstock.shuffle.runs import RunFile, RunWriter
from penstock.shuffle.session import Promotion, Report, Session, advance, reached
from penstock.shuffle.slices import Slice, SliceLimits
from penstock.sources.journals import JournalSource
from penstock.sources.parts import PartName
from penstock.storage import Storage

LATER = 1 << 63


@dataclass
class Cast:
    """``members`` that share journals; ``visible`` has by epoch and queue what was shown."""

    folder: Path
    sources: Mapping[str, JournalSource]
    members: int = 2
    limits: SliceLimits = field(default_factory=lambda: SliceLimits(1 << 20, 1 << 20, 60.0))
    now: int = LATER
    epoch: int = 0
    positions: dict[PartName, Position] = field(default_factory=dict)
    session: Session = field(default_factory=Session)
    reports: list[Report] = field(default_factory=list)
    visible: dict[int, dict[tuple[str, int], pa.Table]] = field(default_factory=dict)
    bytes: int = 0

    def __post_init__(self) -> None:
        self.storage = Storage(self.folder)

    def run(self, *, fails: bool = False) -> None:
        """One epoch. If it fails, all that it did is forgotten."""
        session, promotions = advance(self.session, self.reports, self.epoch, 0.0, self.cohort_of)
        session = Session.from_json(json.loads(json.dumps(session.to_json())))
        shown = self.show(promotions)
        before = {
            PartName(name, journal): self.positions.get(PartName(name, journal), Position())
            for name, source in self.sources.items()
            for journal in source.list_parts()
        }
        reports, after = [], dict(self.positions)
        for member in range(self.members):
            mine = {read: before[read] for read in sorted(before)[member :: self.members]}
            report, positions = self.slice(member, mine, session, fails)
            reports.append(Report.from_json(json.loads(json.dumps(report.to_json()))))
            after |= {
                read: Position.from_state(json.loads(json.dumps(at.to_state())))
                for read, at in positions.items()
            }
        if not fails:
            self.epoch += 1
            self.session, self.reports, self.positions = session, reports, after
            self.visible[self.epoch] = shown

    def slice(
        self, member: int, mine: Mapping[PartName, Position], session: Session, fails: bool
    ) -> tuple[Report, dict[PartName, Position]]:
        epoch = self.epoch + 1
        with RunWriter(self.storage, f"runs/{epoch}-{member}-{'x' if fails else 'o'}", epoch, None) as writer:
            slice_ = Slice(self.sources, writer, self.limits, self.now)
            slice_.read(mine)
        self.bytes += slice_.bytes
        positions = {**mine, **slice_.positions}

        def commits(journal: str, producer: int) -> int:
            source, _, name = journal.partition("/")
            track = positions.get(PartName(source, name), Position()).producers.get(producer)
            return 0 if track is None else track.sequence.last_commit

        told = reduce(slice_.progress, reached(session.awaited, commits))
        files: tuple[RunFile, ...] = slice_.files
        return Report(epoch, told, files), slice_.positions

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
            if (
                idle
                and self.positions == before
                and not self.session.waiting
                and not self.visible[self.epoch]
            ):
                return

    def rows(self) -> list[dict[str, Any]]:
        return [
            row | {"epoch": epoch, "queue": queue}
            for epoch, shown in self.visible.items()
            for queue, table in shown.items()
            for row in table.to_pylist()
        ]

"""The files that an instance writes for an epoch: states, lists, what it brought, where journals stand."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import count

from penstock.journals.shuffle.visibility.coordinator import ShuffleState, SliceReport
from penstock.sources.base import PartName
from penstock.storage import Storage
from penstock.streams.ingest.absent_journals import ABSENT, Absent, AbsentFile
from penstock.streams.ingest.finished_parts import FINISHED, STATES, FinishedParts, StatesFile
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.part_lists import ANNOUNCED, Announced
from penstock.streams.ingest.shuffle_files import REPORT, SESSION, ReportFile, SessionFile
from penstock.streams.layout import Layout
from penstock.streams.model import PORTION, Brought, PartState, Pointer, Portion

_log = logging.getLogger(__name__)

Parts = Mapping[PartName, PartState]
Stated = tuple[Parts, Parts]
"""Parts, and queues of journals."""
Listed = Mapping[str, frozenset[str]]
"""Parts by source."""


class EpochFiles:
    """The files of one instance of a stream."""

    def __init__(self, storage: Storage, layout: Layout, member: str) -> None:
        self._storage = storage
        self._layout = layout
        self._member = member
        # Files of two lives of one member must not have the same names.
        self._life = secrets.token_hex(4)

    @property
    def own(self) -> str:
        """What the names of this instance's files begin with."""
        return f"{self._member}-{self._life}"

    def states(self, epoch: int, known: Pointer | None, before: Stated, now: Stated) -> Pointer | None:
        """The states of the parts that go on; the file that is ``known`` if they are as before."""
        if not any(now) or (known is not None and now == before):
            return known if any(now) else None
        path = self._layout.states_file(epoch, self._member, self._life)
        parts, queues = now
        return Pointer.write(self._storage, path, STATES, StatesFile.of(parts, queues))

    def finished(
        self, epoch: int, known: Pointer | None, before: FinishedParts, parts: Parts
    ) -> tuple[Pointer | None, FinishedParts]:
        """The finished parts with the ``parts`` that have finished now, and their index file."""
        if not parts and (known is not None or not len(before)):
            return known, before
        numbers = count()

        def segment(body: StatesFile) -> Pointer:
            path = self._layout.finished_segment(epoch, self._member, self._life, next(numbers))
            return Pointer.write(self._storage, path, STATES, body)

        finished_parts = before.extended(parts, self._storage, segment)
        path = self._layout.finished_file(epoch, self._member, self._life)
        return Pointer.write(self._storage, path, FINISHED, finished_parts.index()), finished_parts

    def listing(self, epoch: int, found: Listed, forgotten: Collection[PartName] = ()) -> Pointer | None:
        """The parts that nobody knew, and those that nobody need know any more."""
        if not any(found.values()) and not forgotten:
            return None
        path = self._layout.listing(epoch, self._member, self._life)
        sources = {name: tuple(sorted(parts)) for name, parts in found.items() if parts}
        names = tuple((name.source, name.part) for name in sorted(forgotten))
        return Pointer.write(self._storage, path, ANNOUNCED, Announced(sources, names))

    def absent(self, epoch: int, known: Pointer | None, before: Absent, now: Absent) -> Pointer | None:
        """For how long parts were missing; the file that is ``known`` if nothing is told anew."""
        if not now or (known is not None and now == before):
            return known if now else None
        path = self._layout.absent_file(epoch, self._member, self._life)
        return Pointer.write(self._storage, path, ABSENT, AbsentFile(now))

    def portion(
        self, epoch: int, polled: Polled, watermarks: Mapping[str, int], *, tell: bool
    ) -> Brought | None:
        """The row files, and their sums; ``tell``: also if there are none, for the watermarks."""
        if not polled.files and not tell:
            return None
        path = self._layout.portion(epoch, self._member, self._life)
        pointer = Pointer.write(self._storage, path, PORTION, Portion(polled.files))
        late = sum(f.record.rows for f in polled.files if f.late)
        rows = sum(f.record.rows for f in polled.files if not f.late)
        size = sum(f.record.bytes for f in polled.files)
        return Brought(self._member, pointer, rows, size, late, dict(watermarks))

    def report(self, epoch: int, report: SliceReport) -> Pointer | None:
        """What slices did, if they did anything or have something on its way."""
        if not report.files and not report.held and not report.progress.journals:
            return None
        path = self._layout.report_file(epoch, self._member, self._life)
        return Pointer.write(self._storage, path, REPORT, ReportFile(report.to_json()))

    def session(self, epoch: int, session: ShuffleState) -> Pointer:
        """Where the shuffle stands."""
        path = self._layout.session_file(epoch, self._member, self._life)
        return Pointer.write(self._storage, path, SESSION, SessionFile(session.to_json()))

    def discard(self, epoch: int, kept: Iterable[Pointer]) -> None:
        """Delete what was written for an epoch that will not be, except for what is still referred to.

        It would be swept one day, but a source that fails for hours must not fill the disk until then.
        """
        paths = {pointer.path for pointer in kept}
        folders = (self._layout.epoch_rows(epoch), self._layout.epoch_runs(epoch))
        try:
            for path in self._written_for(epoch, folders):
                if path not in paths:
                    self._storage.delete(path)
            for folder in folders:
                self._storage.remove_empty(folder)
        except Exception as error:
            _log.warning("files of epoch %d, which was given up, were not deleted: %s", epoch, error)

    def _written_for(self, epoch: int, folders: Iterable[str]) -> Iterator[str]:
        """The paths of all files for an epoch, whether they are there or not."""
        for folder in folders:
            for path, _ in self._storage.list(folder):
                # Those that are not complete begin with a point.
                if path.rpartition("/")[2].removeprefix(".").startswith(f"{self.own}-"):
                    yield path
        layout = self._layout
        places = (layout.portion, layout.states_file, layout.finished_file, layout.listing)
        for place in (*places, layout.report_file, layout.session_file, layout.absent_file):
            yield place(epoch, self._member, self._life)
        own = layout.finished_segment(epoch, self._member, self._life, 0).removesuffix("0.json")
        for path, _ in self._storage.list(layout.epoch_finished(epoch)):
            if path.startswith(own):
                yield path

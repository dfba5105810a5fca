"""The files that an instance writes for an epoch: states, lists, what it brought, where journals stand."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping

from penstock.shuffle.session import Report, Session
from penstock.sources.parts import PartName
from penstock.storage import Storage
from penstock.streams.ingest import Polled
from penstock.streams.layout import Layout
from penstock.streams.model import Brought, PartState, Pointer

_log = logging.getLogger(__name__)

Parts = Mapping[PartName, PartState]
Listed = Mapping[str, frozenset[str]]
"""Parts by source."""


class Books:
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

    def states(self, epoch: int, known: Pointer | None, before: Parts, parts: Parts) -> Pointer | None:
        """The states of the parts that go on; the file that is ``known`` if they are as before."""
        path = self._layout.states_file(epoch, self._member, self._life)
        return self._parts(path, known, _open(before), _open(parts))

    def finished(self, epoch: int, known: Pointer | None, before: Parts, parts: Parts) -> Pointer | None:
        """The states of the parts that have finished: they may be many, and hardly ever change."""
        path = self._layout.finished_file(epoch, self._member, self._life)
        return self._parts(path, known, _finished(before), _finished(parts))

    def listing(self, epoch: int, known: Pointer | None, before: Listed, listed: Listed) -> Pointer | None:
        """The parts of the sources that this instance lists."""
        if not listed:
            return None
        if known is not None and listed == {name: before.get(name, frozenset()) for name in listed}:
            return known
        path = self._layout.listing(epoch, self._member, self._life)
        body = {"sources": {name: sorted(parts) for name, parts in listed.items()}}
        return Pointer.write(self._storage, path, body)

    def portion(self, epoch: int, polled: Polled) -> Brought | None:
        """The row files, and their sums."""
        if not polled.files and not polled.dropped:
            return None
        path = self._layout.portion(epoch, self._member, self._life)
        pointer = Pointer.write(self._storage, path, {"files": [file.to_json() for file in polled.files]})
        late = sum(f.record.rows for f in polled.files if f.late) + sum(polled.dropped.values())
        rows = sum(f.record.rows for f in polled.files if not f.late)
        size = sum(f.record.bytes for f in polled.files)
        return Brought(self._member, pointer, rows, size, late)

    def report(self, epoch: int, report: Report) -> Pointer | None:
        """What slices did, if they did anything or have something on its way."""
        if not report.files and not report.held and not report.progress.journals:
            return None
        path = self._layout.report_file(epoch, self._member, self._life)
        return Pointer.write(self._storage, path, {"report": report.to_json()})

    def session(self, epoch: int, session: Session) -> Pointer:
        """Where the shuffle stands."""
        path = self._layout.session_file(epoch, self._member, self._life)
        return Pointer.write(self._storage, path, {"session": session.to_json()})

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
        for place in (*places, layout.report_file, layout.session_file):
            yield place(epoch, self._member, self._life)

    def _parts(self, path: str, known: Pointer | None, before: Parts, parts: Parts) -> Pointer | None:
        if not parts or (known is not None and parts == before):
            return known if parts else None
        body = {str(name): [each.state, each.finished] for name, each in sorted(parts.items())}
        return Pointer.write(self._storage, path, {"parts": body})


def _open(parts: Parts) -> Parts:
    return {name: known for name, known in parts.items() if not known.finished}


def _finished(parts: Parts) -> Parts:
    return {name: known for name, known in parts.items() if known.finished}

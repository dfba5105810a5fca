"""Finding and deleting the files of a stream that nothing refers to.

What belongs to an epoch has the epoch in its path, and epochs share folders by groups. Rows and portions are
referred to by their own epoch alone. States and listings are referred to by decisions, also by later ones
than that of the epoch they were written for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.rules.model import Decision
from penstock.core.failpoints import reach
from penstock.errors import CorruptFile
from penstock.streams.ingest.finished_parts import FinishedParts
from penstock.streams.ingest.shuffle_files import waiting_runs
from penstock.streams.layout import GROUP, epoch_of, group_of, grouped
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.model import SCOPE, Epoch, Standing


class Sweeper:
    """Deletes files of one stream. Everything is harmless when repeated, and when others do the same."""

    def __init__(self, log: EpochLog) -> None:
        self._log = log
        self._storage = log.storage
        self._layout = log.layout
        self._readers = ReaderPositions(log)
        self._records = Records(log.store, Keys(log.layout.cluster))
        self._waiting: dict[str, frozenset[str | None]] = {}

    def clear(self, begin: int, floor: int) -> None:
        """Delete the rows and portions of the epochs from ``begin`` to below ``floor``.

        The group before is looked at again: a straggler may have written there since.
        """
        for group in range(max(0, group_of(begin) - 1), group_of(floor) + 1):
            for folder in (self._layout.rows, self._layout.portions):
                if (group + 1) * GROUP <= floor:
                    self._storage.delete(grouped(folder, group))
                    reach("retention.deleting")
                else:
                    self._delete_below(grouped(folder, group), floor)

    def group(self, group: int) -> int:
        """Delete the rows and portions of a group's epochs that are not part of a committed epoch.

        All its epochs must have been decided. Those below the floor are left to `clear`: somebody may still
        read them. The answer is the number of files.
        """
        rows = _by_epoch(self._storage.list(grouped(self._layout.rows, group)))
        portions = [path for path, _ in self._storage.list(grouped(self._layout.portions, group))]
        first = max(group * GROUP, self._log.floor)
        portions = [path for path in portions if not _is_upto(path, first - 1)]
        rows = {number: files for number, files in rows.items() if number >= first}
        epochs = {each.number: each for each in self._log.entries(first - 1, (group + 1) * GROUP - 1)}
        named = {brought.portion.path for each in epochs.values() for brought in each.brought}
        spare = [path for path in portions if path not in named]
        for number, files in rows.items():
            epoch = epochs.get(number)
            # As a rule the sum tells, without reading the portions, that there is nothing else.
            if epoch is None or sum(files.values()) != epoch.bytes:
                known = self._files(epoch) if epoch else frozenset()
                spare += [path for path in files if path not in known]
        return self._delete(spare, grouped(self._layout.rows, group))

    def states(self, limit: int) -> int:
        """Delete states and listings of epochs up to ``limit`` that no decision in the store refers to."""
        folders = (self._layout.states, self._layout.listings)
        found = [path for folder in folders for path, _ in self._storage.list(folder)]
        # Read after the listing: what nobody refers to now was written for an epoch long decided, and the
        # decisions to come refer to what the last one does, or to new files.
        named = {path for each in self._records.decisions(SCOPE) for path in _pointers(each)}
        spare = [path for path in found if path not in named and _is_upto(path, limit)]
        return self._delete(spare, *folders)

    def finished(self, limit: int) -> int:
        """Delete segments of finished parts of epochs up to ``limit`` that no decision points to."""
        found = [path for path, _ in self._storage.list(self._layout.finished) if _is_upto(path, limit)]
        if not found:
            return 0
        standings = (
            Standing.decode(text)
            for each in self._records.decisions(SCOPE)
            for text in each.frontiers.values()
        )
        pointers = {each.finished for each in standings}
        try:
            all_finished = [FinishedParts.read(self._storage, pointer) for pointer in pointers]
        except CorruptFile:
            return 0  # of a decision that is pruned by now; the next round knows
        named = {
            segment.pointer.path for finished_parts in all_finished for segment in finished_parts.segments
        }
        return self._delete([path for path in found if path not in named], self._layout.finished)

    def runs(self, limit: int) -> int:
        """Delete run files of epochs up to ``limit`` that the last committed epoch does not refer to."""
        found = [path for path, _ in self._storage.list(self._layout.runs) if _is_upto(path, limit)]
        if not found:
            return 0
        decision = self._records.decision(SCOPE, self._log.committed())
        if decision is None:
            return 0
        named = waiting_runs(self._storage, (Standing.decode(text) for text in decision.frontiers.values()))
        return self._delete([path for path in found if path not in named], self._layout.runs)

    def polled(self, limit: int) -> int:
        """Delete rows that were polled beside epochs up to ``limit``, by jobs that are not under way."""
        found = [path for path, _ in self._storage.list(self._layout.polled) if _is_upto(path, limit)]
        if not found:
            return 0
        # Read after the listing: a job that is still under way then was begun before, or is not in the list.
        decision = self._records.decision(SCOPE, self._log.committed())
        if decision is None:
            return 0
        named = {Standing.decode(text).beside for text in decision.frontiers.values()}
        return self._delete([path for path in found if epoch_of(path) not in named], self._layout.polled)

    def segments(self) -> int:
        """Delete segments that were merged into others, once nobody reads the log as it was."""
        # Those that begin with a point are being written.
        found = [path for path, _ in self._storage.list(self._layout.log) if "/." not in path]
        if len(found) <= len(self._log.view().document.segments):
            return 0
        # Whoever wrote one of them and has not named it yet must write a new one, since the document changes.
        document = self._log.change(lambda view: replace(view.document, turn=view.document.turn + 1))
        named = {segment.pointer.path for segment in document.segments}
        return self._delete(self._unread([path for path in found if path not in named]))

    def _unread(self, spare: list[str]) -> list[str]:
        """Those that were spare already when the oldest hold of now began.

        Who begins later does not see them: it is enough to wait for those who were there at the first look.
        """
        held = frozenset(position.session for position in self._readers.held())
        self._waiting = {path: self._waiting.get(path, held) & held for path in spare}
        return [path for path, readers in self._waiting.items() if not readers]

    def _delete_below(self, folder: str, floor: int) -> None:
        paths = [path for path, _ in self._storage.list(folder) if _is_upto(path, floor - 1)]
        self._delete(paths, folder)

    def _delete(self, paths: Iterable[str], *folders: str) -> int:
        count = 0
        for path in paths:
            self._storage.delete(path)
            reach("retention.deleting")
            count += 1
        for folder in folders if count else ():
            self._storage.remove_empty(folder)
        return count

    def _files(self, epoch: Epoch) -> frozenset[str]:
        files = (file for brought in epoch.brought for file in brought.files(self._storage))
        return frozenset(file.record.path for file in files)


def _by_epoch(files: Iterable[tuple[str, int]]) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for path, size in files:
        if (epoch := epoch_of(path)) is not None:
            found[epoch][path] = size
    return found


def _is_upto(path: str, limit: int) -> bool:
    epoch = epoch_of(path)
    return epoch is not None and epoch <= limit


def _pointers(decision: Decision) -> Iterable[str]:
    """The paths of states and listings that a decision refers to."""
    for text in decision.frontiers.values():
        for pointer in Standing.decode(text).pointers:
            yield pointer.path

"""Transactions that earlier calls of a slice have read the begin of: it is read again when their ack comes.

That can be much. What a call may read again is limited; what does not fit goes on in the next ones, and the
journal stands still at the ack until then. What was written meanwhile is held, and released as a whole.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

import numpy as np

from penstock.journals.shuffle.queues.run_files import RunFile
from penstock.journals.shuffle.sequencing import vector
from penstock.journals.shuffle.sequencing.columns import JournalLines, Lines
from penstock.journals.shuffle.sequencing.groups import Groups, ack_of
from penstock.journals.shuffle.sequencing.vector import Replay
from penstock.journals.shuffle.slices.positions import Held, JournalPosition
from penstock.journals.shuffle.slices.readers import Readers
from penstock.sources.base import PartName

Array: TypeAlias = "np.ndarray[Any, Any]"
Choose: TypeAlias = Callable[[Lines], tuple[Array, Array, Array]]
"""Which lines are handed on, with the clocks of their commits, and their groups."""

_log = logging.getLogger(__name__)

BLOCK = 16 << 20
"""So many bytes are parsed, sequenced and sorted at once."""


class HandOn(Protocol):
    """Writes what is picked from pieces; the journals of documents that were left out, one name for each."""

    def __call__(
        self, source: str, pieces: list[JournalLines], choose: Choose, hold: Hashable = None
    ) -> list[str]: ...


class Replays:
    """What one call of a slice reads again, ``limit`` bytes at the most.

    ``positions`` are the slice's own.
    """

    def __init__(
        self, readers: Readers, positions: dict[PartName, JournalPosition], hand_on: HandOn, limit: int
    ) -> None:
        self._readers = readers
        self._positions = positions
        self._hand_on = hand_on
        self._limit = self._left = limit
        self.deadline = 0.0
        self.held: dict[tuple[PartName, int], Held] = {}
        """What this call did for transactions that are not whole yet, by journal and producer."""
        self.released: list[RunFile] = []
        """What earlier calls have written for those that are."""

    def postponed(self, lines: Lines, groups: Groups, replays: list[Replay]) -> dict[int, Replay]:
        """Those of which too much must be read again, by the lines of their acks; one for each journal."""
        left = self._left
        if sum(each.end - each.begin for each in replays) <= left:
            return {}
        postponed: dict[int, Replay] = {}
        spans: dict[PartName, tuple[int, int]] = {}
        stopped: set[PartName] = set()
        acks = ((ack_of(lines, groups, replay), replay) for replay in replays)
        for line, replay in sorted(acks, key=itemgetter(0)):
            read = groups.reads[replay.group]
            if read in stopped:
                continue
            span = _joined(spans.get(read), self._rest(groups, replay))
            more = _size(span) - _size(spans.get(read))
            if more > left:
                postponed[line] = replay
                stopped.add(read)
            else:
                left -= more
                spans[read] = span
        return postponed

    def some(self, source: str, groups: Groups, postponed: list[Replay]) -> list[str]:
        """Hand on as much as this call still may of those that no call can do as a whole.

        The others have their turn in the next one: they stand first in line then.
        """
        out: list[str] = []
        for replay in (self._rest(groups, each) for each in postponed):
            if self._left <= 0 or replay.end - replay.begin <= self._limit:
                continue
            read, producer = groups.reads[replay.group], groups.producers[replay.group]
            known = self._positions[read].held.get(producer)
            if self._is_broken(read, replay):
                out.append(read.part)
                self.held[read, producer] = Held(replay.end, replay.after)
                continue
            going, at = {replay.group: replay}, replay.end
            for piece in self._again(read, replay.begin, replay.end):
                choose = _choosing(groups, going)
                out += self._hand_on(source, [piece], choose, (read, producer))
                self._left -= len(piece.data)
                if self._left <= 0 or time.monotonic() >= self.deadline:
                    at = piece.begin + len(piece.data)
                    break
            files = known.files if known is not None else ()
            self.held[read, producer] = Held(at, going[replay.group].after, files)
        return out

    def sorted_out(self, groups: Groups, replays: list[Replay]) -> tuple[list[Replay], list[Replay]]:
        """Those of which bytes are gone, so that nothing of them may be handed on; and the others."""
        broken = [
            replay
            for replay in replays
            if self._is_broken(groups.reads[replay.group], self._rest(groups, replay))
        ]
        return broken, [replay for replay in replays if replay not in broken]

    def all(self, source: str, groups: Groups, replays: list[Replay]) -> list[str]:
        """Read transactions again from their begin, and hand on what was read of them before this call."""
        out: list[str] = []
        pieces: list[JournalLines] = []
        spans: dict[PartName, tuple[int, int]] = {}
        going: dict[int, Replay] = {}
        for replay in (self._rest(groups, each) for each in replays):
            read = groups.reads[replay.group]
            going[replay.group] = replay
            spans[read] = _joined(spans.get(read), replay)
            held = self._positions[read].held.get(groups.producers[replay.group])
            self.released += () if held is None else held.files
        self._left -= sum(map(_size, spans.values()))
        gathered = 0
        for piece in (piece for read, span in spans.items() for piece in self._again(read, *span)):
            if pieces and gathered + len(piece.data) > BLOCK:
                out += self._hand_on(source, pieces, _choosing(groups, going))
                pieces, gathered = [], 0
            pieces.append(piece)
            gathered += len(piece.data)
        return out + self._hand_on(source, pieces, _choosing(groups, going)) if pieces else out

    def _rest(self, groups: Groups, replay: Replay) -> Replay:
        """What calls before have left to do."""
        held = self._positions[groups.reads[replay.group]].held.get(groups.producers[replay.group])
        return replay if held is None else replace(replay, begin=held.at, after=held.after)

    def _is_broken(self, read: PartName, replay: Replay) -> bool:
        """Whether bytes of a transaction are gone that may be: then nothing of it is handed on."""
        lacking = self._readers.lacking(read, replay.begin, replay.end)
        if lacking:
            _log.warning(
                "journal %s: %d bytes of the transaction that ends at offset %d are gone; it is skipped",
                read.part,
                lacking,
                replay.end,
            )
            self._lose(read, lacking)
        return lacking > 0

    def _again(self, read: PartName, begin: int, end: int) -> Iterator[JournalLines]:
        """The bytes of a journal once more; what is lost of them is counted."""
        at = begin
        for piece in self._readers.again(read, begin, end, BLOCK):
            self._lose(read, piece.begin - at)
            at = piece.begin + len(piece.data)
            yield piece
        self._lose(read, end - at)

    def _lose(self, read: PartName, size: int) -> None:
        if size > 0:
            before = self._positions[read]
            self._positions[read] = replace(before, lost=before.lost + size)


def _choosing(groups: Groups, going: dict[int, Replay]) -> Choose:
    """Picks what transactions lack from pieces that were read again; they note how far that was."""

    def choose(lines: Lines) -> tuple[Array, Array, Array]:
        stamps, numbers = lines.stamps, {journal: number for number, journal in enumerate(lines.journals)}
        found: list[tuple[Array, int, int]] = []
        for group, replay in going.items():
            number = numbers.get(groups.reads[group].part)
            if number is None:
                continue
            producer = np.uint64(groups.producers[group])
            own = np.flatnonzero((lines.journal == number) & (stamps.producer == producer))
            documents = vector.Documents(
                np.zeros(len(own), np.int64), stamps.flag[own], stamps.clock[own], lines.offset[own]
            )
            chosen = own[vector.replayed(replay, documents)]
            if len(chosen):
                found.append((chosen, replay.upto, group))
                going[group] = replace(replay, after=int(stamps.clock[chosen].max()))
        counts = [len(chosen) for chosen, _, _ in found]
        commit = np.repeat(np.array([upto for _, upto, _ in found], np.uint64), counts)
        ids = np.repeat(groups.ids[[group for _, _, group in found]], counts)
        return np.concatenate([np.zeros(0, np.int64), *(each for each, _, _ in found)]), commit, ids

    return choose


def _joined(span: tuple[int, int] | None, replay: Replay) -> tuple[int, int]:
    """What must be read again of a journal, for this transaction too."""
    if span is None:
        return replay.begin, replay.end
    return min(span[0], replay.begin), max(span[1], replay.end)


def _size(span: tuple[int, int] | None) -> int:
    return 0 if span is None else span[1] - span[0]

"""A slice: reads journals on from where they stand, sequences documents, and writes runs for the queues.

The journal that is furthest behind is read first, a piece at a time; those of a higher priority come before
all others. Documents of a transaction are handed on when its ack is read. What an earlier call has read of it
is read again then, so that nothing is kept of a transaction that is open, however large it is. Where that is
much, it takes several calls: the journal stands still at the ack, and what was written for the queues is held
until all of the transaction is.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

from penstock.errors import BadInput
from penstock.journals.format.uuids import SECOND, clock_time
from penstock.journals.shuffle.queues.rows import RowMaker
from penstock.journals.shuffle.queues.run_files import RunFile, RunWriter, Settled
from penstock.journals.shuffle.sequencing import vector
from penstock.journals.shuffle.sequencing.columns import JournalLines, Lines
from penstock.journals.shuffle.sequencing.groups import Groups, forgotten, may_be_repeated, open_from
from penstock.journals.shuffle.sequencing.parsing import LARGEST_CLOCK, LARGEST_OFFSET
from penstock.journals.shuffle.slices.hinting import Hints
from penstock.journals.shuffle.slices.positions import Held, JournalPosition, Track
from penstock.journals.shuffle.slices.readers import Readers
from penstock.journals.shuffle.slices.replays import BLOCK, Choose, Replays
from penstock.journals.shuffle.visibility.frontier import Frontier, Mark, farther
from penstock.sources.base import PartName
from penstock.sources.journals import JournalSource

Array: TypeAlias = "np.ndarray[Any, Any]"

_log = logging.getLogger(__name__)

_PIECE = 64 << 10
"""So many bytes are read of a journal at a time at the least: little, so that all stay side by side."""
_PIECES = 4096
_TAIL = 4
_FAR = 86_400 * SECOND


@dataclass(frozen=True, slots=True)
class SliceLimits:
    """What one call may read: bytes of journals, documents that are handed on, and seconds."""

    bytes: int
    rows: int
    seconds: float


class Slice:
    """Reads some journals of one or several sources.

    ``now`` is the clock up to which documents may be read, before the delay of their source.
    """

    def __init__(
        self, sources: Mapping[str, JournalSource], writer: RunWriter, limits: SliceLimits, now: int
    ) -> None:
        self._sources = sources
        self._makers = {name: RowMaker(name, source) for name, source in sources.items()}
        self._writer = writer
        self._limits = limits
        self._now = now
        self._readers = Readers(sources)
        self._before: dict[PartName, JournalPosition] = {}
        self._positions: dict[PartName, JournalPosition] = {}
        self._stopped: set[PartName] = set()
        self._early: set[PartName] = set()
        self._deadline = 0.0
        self._replays = Replays(self._readers, self._positions, self._hand_on_again, max(limits.bytes, BLOCK))
        self._marks: dict[tuple[str, int], Mark] = {}
        self._hints = Hints(sources)
        self.bytes = 0
        self.rows = 0
        self._waiting: set[PartName] = set()

    @property
    def positions(self) -> dict[PartName, JournalPosition]:
        """Where the journals stand that were read, once the runs are written."""
        moved = {read: at for read, at in self._positions.items() if at != self._before[read]}
        for (read, producer), each in self._replays.held.items():
            files = (*each.files, *self._writer.held(read.source, (read, producer)))
            at = moved.get(read, self._positions[read])
            moved[read] = replace(at, held={**at.held, producer: replace(each, files=files)})
        return moved

    @property
    def files(self) -> tuple[RunFile, ...]:
        """What was written for the queues, also by calls before, of transactions that are whole now."""
        released = (replace(file, epoch=self._writer.epoch) for file in self._replays.released)
        return (*self._writer.written, *released)

    @property
    def unasked(self) -> frozenset[PartName]:
        """The journals that had not their turn, or could not be read to their end."""
        return frozenset(self._waiting | self._stopped)

    @property
    def behind(self) -> frozenset[PartName]:
        """Those of them of which there is more to read now: what is too new does not count as written yet."""
        return self.unasked - self._early

    @property
    def unfinished(self) -> Mapping[PartName, int]:
        """Where lines begin at the end of journals whose ends are not there yet."""
        return self._readers.unfinished

    @property
    def progress(self) -> Frontier:
        """The marks of producers that moved, and of those that acks hint at."""
        marks = dict(self._marks)
        for journal, mark in self._hints.marks():
            key = journal, mark.producer
            marks[key] = farther(marks[key], mark) if key in marks else mark
        return Frontier.of(
            ((journal, mark) for (journal, _), mark in marks.items()), joint=self._hints.joints()
        )

    def read(self, positions: Mapping[PartName, JournalPosition]) -> None:
        """Read the journals on, until they have nothing more or a limit is reached."""
        self._before = dict(positions)
        self._positions.update(positions)
        self._readers.expect({read: at.offset for read, at in positions.items()})
        # An object store may take long to say what there is: there must be time to read some of it.
        self._deadline = self._replays.deadline = time.monotonic() + self._limits.seconds
        with self._readers:
            for _, level in groupby(sorted(positions, key=self._rank), key=self._rank):
                waiting = [(self._positions[read].clock, read) for read in level]
                heapq.heapify(waiting)
                while waiting and not self._is_full and not self._is_late:
                    self._read_block(waiting)
                self._waiting.update(read for _, read in waiting)

    def _rank(self, read: PartName) -> int:
        return -self._sources[read.source].priority

    @property
    def _is_full(self) -> bool:
        return self.bytes >= self._limits.bytes or self.rows >= self._limits.rows

    @property
    def _is_late(self) -> bool:
        return time.monotonic() >= self._deadline

    def _read_block(self, waiting: list[tuple[int, PartName]]) -> None:
        """Read a piece of each journal, those that are behind first, until there is enough to work on."""
        size = max(_PIECE, BLOCK // len(waiting))
        pieces: dict[str, list[JournalLines]] = {}
        came: list[PartName] = []
        gathered = 0
        while waiting and gathered < BLOCK and len(came) < _PIECES:
            left = self._limits.bytes - self.bytes - gathered
            if left <= 0 or self._is_late:
                break
            _, read = heapq.heappop(waiting)
            least = self._readers.least(read, len(waiting))
            piece = self._piece(read, min(max(size, least), left))
            if piece is not None:
                pieces.setdefault(read.source, []).append(piece)
                came.append(read)
                gathered += len(piece.data)
        for source, each in pieces.items():
            self.bytes += self._take(source, each)
        for read in came:
            if read not in self._stopped:
                heapq.heappush(waiting, (self._positions[read].clock, read))

    def _piece(self, read: PartName, size: int) -> JournalLines | None:
        before = self._positions[read]
        chunk, lost = self._readers.next(read, before.offset, size)
        if lost:
            self._positions[read] = before.without(lost)
        return None if chunk is None else JournalLines(read.part, chunk.begin, chunk.data)

    # what becomes of documents

    def _take(self, source: str, pieces: list[JournalLines]) -> int:
        """Sequence what was read; how many bytes of it do not have to wait."""
        lines = self._makers[source].parser.parse(pieces)
        lines, ends = self._in_time(source, lines, pieces)
        lines = self._without_tails(source, lines, pieces, ends)
        groups, decision = self._decided(source, lines)
        left_out: list[str] = []
        if postponed := self._replays.postponed(lines, groups, decision.replays):
            left_out += self._replays.some(source, groups, list(postponed.values()))
            self._early -= {groups.reads[replay.group] for replay in postponed.values()}
            lines = self._stop_at(source, lines, np.array(sorted(postponed)), ends)
            groups, decision = self._decided(source, lines)
        left_out += self._forgotten(source, lines, groups)
        for group, wrong in decision.dropped:
            _log.warning("%s; the transaction is skipped", wrong.told(*groups.name(group)).what)
            left_out.append(groups.reads[group].part)
        broken, whole = self._replays.sorted_out(groups, decision.replays)
        left_out += [groups.reads[replay.group].part for replay in broken]
        chosen = np.flatnonzero(_settled(groups, decision, broken))
        left_out += self._hand_on(
            source, lines, chosen, decision.commit[chosen], groups.ids[groups.group[chosen]]
        )
        if whole:
            left_out += self._replays.all(source, groups, whole)
        self._note(source, lines, groups, decision, ends, left_out)
        self._hints.note(source, lines, groups)
        return sum(ends[piece.journal] - piece.begin for piece in pieces)

    def _forgotten(self, source: str, lines: Lines, groups: Groups) -> list[str]:
        """The journals of documents of which nobody knows whether they were read before, a name for each."""
        old = forgotten(lines, groups, self._positions).tolist()
        if not old:
            return []
        error = may_be_repeated(lines, groups, self._positions, old[0])
        if self._sources[source].on_disorder != "skip":
            raise error
        _log.warning("%s; %d such documents are skipped", error.what, len(old))
        return [lines.journals[number] for number in lines.journal[old].tolist()]

    def _decided(self, source: str, lines: Lines) -> tuple[Groups, vector.DocumentDecisions]:
        groups = Groups.of(source, lines, self._positions)
        stamps = lines.stamps
        documents = vector.Documents(groups.group, stamps.flag, stamps.clock, lines.offset)
        drops = self._sources[source].on_disorder == "skip"
        return groups, vector.decide(documents, groups.before, groups.name, drops=drops)

    def _in_time(self, source: str, lines: Lines, pieces: list[JournalLines]) -> tuple[Lines, dict[str, int]]:
        """The documents whose delay has passed, and where each journal was read up to.

        A journal is cut at the first that must wait.
        """
        ends = {piece.journal: piece.begin + len(piece.data) for piece in pieces}
        limit = self._now - self._sources[source].delay
        far = np.flatnonzero(lines.stamps.clock > np.uint64(min(self._now + _FAR, LARGEST_CLOCK)))
        if len(far):
            raise _in_the_future(lines, int(far[0]))
        early = np.flatnonzero(lines.stamps.clock > np.uint64(max(limit, 0)))
        if not len(early):
            return lines, ends
        self._early |= {PartName(source, lines.journals[n]) for n in np.unique(lines.journal[early]).tolist()}
        return self._stop_at(source, lines, early, ends), ends

    def _without_tails(
        self, source: str, lines: Lines, pieces: list[JournalLines], ends: dict[str, int]
    ) -> Lines:
        """The lines without the ends of pieces from where on a transaction is open, if these are short.

        They are put back, and read together with what follows, instead of again when the ack is found.
        """
        limits = open_from(lines)
        is_cut = False
        for number, piece in enumerate(pieces):
            read = PartName(source, piece.journal)
            size = piece.begin + len(piece.data) - int(limits[number])
            if 0 < size <= len(piece.data) // _TAIL and read not in self._stopped:
                self._readers.put_back(read, piece.data[-size:])
                ends[piece.journal] -= size
                is_cut = True
            else:
                limits[number] = LARGEST_OFFSET
        return lines.select(np.flatnonzero(lines.offset < limits[lines.journal])) if is_cut else lines

    def _stop_at(self, source: str, lines: Lines, places: Array, ends: dict[str, int]) -> Lines:
        """The lines of each journal before the first of these places in it, which must be in order.

        These journals are not read on in this call.
        """
        journals, first = np.unique(lines.journal[places], return_index=True)
        kept = np.ones(len(lines), np.bool_)
        for number, line in zip(journals.tolist(), places[first].tolist(), strict=True):
            kept[line:] &= lines.journal[line:] != number
            ends[lines.journals[number]] = int(lines.offset[line])
            self._stopped.add(PartName(source, lines.journals[number]))
        return lines.select(np.flatnonzero(kept))

    def _hand_on(
        self, source: str, lines: Lines, chosen: Array, commit: Array, group: Array, hold: Hashable = None
    ) -> list[str]:
        """Write documents to the runs; the journals of those that were left out, one name for each."""
        inside = self._asked_for(source, lines.stamps.clock[chosen])
        chosen, commit, group = chosen[inside], commit[inside], group[inside]
        if not len(chosen):
            return []
        maker = self._makers[source]
        fitting, rows = maker.rows(lines, chosen)
        out = []
        if len(fitting) < len(chosen):
            kept = np.isin(chosen, fitting)
            out = [lines.journals[number] for number in lines.journal[chosen[~kept]].tolist()]
            chosen, commit, group = fitting, commit[kept], group[kept]
        clock = lines.stamps.clock[chosen]
        self._writer.add(source, Settled(rows, clock, group, commit, maker.queues(rows, clock)), hold)
        self.rows += len(chosen)
        return out

    def _hand_on_again(
        self, source: str, pieces: list[JournalLines], choose: Choose, hold: Hashable = None
    ) -> list[str]:
        """Write what ``choose`` picks from pieces that were read again; the journals of what was left out."""
        lines = self._makers[source].parser.parse(pieces)
        chosen, commit, group = choose(lines)
        return self._hand_on(source, lines, chosen, commit, group, hold)

    def _asked_for(self, source: str, clock: Array) -> Array:
        wanted = np.ones(len(clock), np.bool_)
        first, end = self._sources[source].not_before, self._sources[source].not_after
        if first is not None:
            wanted &= clock >= np.uint64(first)
        if end is not None:
            wanted &= clock < np.uint64(end)
        return wanted

    # what is remembered

    def _note(
        self,
        source: str,
        lines: Lines,
        groups: Groups,
        decision: vector.DocumentDecisions,
        ends: Mapping[str, int],
        left_out: list[str],
    ) -> None:
        last = np.zeros(len(groups.before), np.int64)
        last[groups.group] = lines.end
        moved: dict[str, dict[int, Track]] = {}
        columns = (groups.reads, groups.producers, groups.before, decision.after, last.tolist())
        for read, producer, known, sequence, end in zip(*columns, strict=True):
            at = self._positions[read]
            if sequence == known and producer not in at.producers:
                continue
            track = Track(sequence, end)
            moved.setdefault(read.part, {})[producer] = track
            if sequence != known:
                mark = track.mark(producer)
                # A clock up to which others were forgotten is no commit of this one.
                is_told = sequence.last_commit != known.last_commit or known.last_commit > at.unknown
                self._mark(str(read), mark if is_told else mark._replace(last_commit=0))
        for journal, end in ends.items():
            read = PartName(source, journal)
            before = self._positions[read]
            self._positions[read] = replace(
                before,
                offset=end,
                producers={**before.producers, **moved.get(journal, {})},
                held=_still_held(before, moved.get(journal, {})),
                left_out=before.left_out + left_out.count(journal),
            ).without_old_producers()

    def _mark(self, journal: str, mark: Mark) -> None:
        key = journal, mark.producer
        before = self._marks.get(key)
        self._marks[key] = mark if before is None else farther(before, mark)


def _settled(groups: Groups, decision: vector.DocumentDecisions, broken: list[vector.Replay]) -> Array:
    """Which documents are committed, without those of transactions whose begin is gone."""
    settled: Array = decision.verdict == vector.SETTLED
    for each in broken:
        settled &= (groups.group != each.group) | (decision.commit != np.uint64(each.upto))
    return settled


def _still_held(before: JournalPosition, moved: Mapping[int, Track]) -> Mapping[int, Held]:
    """What is held of transactions that are still on their way."""
    return {
        producer: each
        for producer, each in before.held.items()
        if producer not in moved
        or moved[producer].sequence.begin == before.producers[producer].sequence.begin
    }


def _in_the_future(lines: Lines, number: int) -> BadInput:
    """A document that would hold up its journal until then."""
    clock = int(lines.stamps.clock[number])
    try:
        when = f"{clock_time(clock):%Y-%m-%d %H:%M} UTC"
    except OverflowError:
        when = "a year above 9999"
    return BadInput(
        f"{lines.where(number)}: the clock of the document says {when}, more than a day from now",
        left="the epoch was not committed, and is tried again",
        hint="look at the clock of the machine that wrote it, and at the one of this machine",
    )

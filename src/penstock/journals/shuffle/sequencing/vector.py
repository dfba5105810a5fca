"""`sequencing.step` over columns of documents.

Groups (a producer in a journal) whose documents come in order, or are what a second reading begins with, are
decided together with numpy; each other group is walked through by `step`, and so the two cannot differ in
what a surprise means.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Listing
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.journals.format.uuids import Flag
from penstock.journals.shuffle.sequencing.sequencing import (
    BadSequence,
    DocumentOutcome,
    Sequence,
    step,
    step_dropping,
)

Column: TypeAlias = npt.NDArray[Any]

DROPPED = 0
"""A repetition, rolled back, or an ack."""
SETTLED = 1
"""Committed: visible to whoever reads up to its commit."""
OPEN = 2
"""In a transaction that is open at the end; if it is committed later, a `Replay` says so."""

_WAIT = {DocumentOutcome.CONTINUE_BEGINS, DocumentOutcome.CONTINUE_EXTENDS}
_CLOSE = {
    DocumentOutcome.ACK_COMMITS,
    DocumentOutcome.ACK_CLEANLY_ROLLS_BACK,
    DocumentOutcome.ACK_DEEP_ROLLS_BACK,
}


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Documents in reading order, as columns of one length.

    ``group`` holds numbers from 0 up to that of the groups, without them; within a group, offsets grow.
    """

    group: Column
    flag: Column
    clock: Column
    offset: Column

    def __post_init__(self) -> None:
        if len({len(self.group), len(self.flag), len(self.clock), len(self.offset)}) != 1:
            raise ValueError("columns of documents differ in length")
        if self.clock.dtype != np.uint64:
            raise ValueError(f"clocks are uint64, not {self.clock.dtype}")


@dataclass(frozen=True, slots=True)
class Replay:
    """A transaction that an earlier call left open and an ack of this one commits, under the clock ``upto``.

    Its documents before this call were not handed on: they are those of the group at offsets ``begin`` to
    ``end`` (excluded) that `replayed` picks.
    """

    group: int
    begin: int
    end: int
    after: int
    upto: int


@dataclass(frozen=True, slots=True, eq=False)
class DocumentDecisions:
    """What becomes of each document: its ``verdict``, and the clock of its ``commit``, 0 unless settled.

    ``after`` is where each group stands now; ``replays`` are sorted by group. ``dropped`` are the groups, and
    what is wrong, where documents form no transactions.
    """

    verdict: npt.NDArray[np.uint8]
    commit: npt.NDArray[np.uint64]
    after: list[Sequence]
    replays: list[Replay]
    dropped: list[tuple[int, BadSequence]]


def decide(
    documents: Documents,
    before: Listing[Sequence],
    names: Callable[[int], tuple[str, int]] | None = None,
    *,
    drops: bool = False,
) -> DocumentDecisions:
    """What becomes of each document, for groups that stand at ``before``.

    ``names`` gives journal and producer of a group, for the error about one whose documents form no
    transactions. After an error, nothing of the call counts. With ``drops`` there are no such errors: what is
    open there is dropped.
    """
    count = len(documents.group)
    decision = DocumentDecisions(np.zeros(count, np.uint8), np.zeros(count, np.uint64), list(before), [], [])
    bounds = _Bounds.of(before)
    rows = _without_repetitions(documents, bounds, _by_group(documents.group, len(before)))
    if not len(rows):
        return decision
    runs = _Runs.of(documents, rows)
    orderly = runs.orderly(bounds)
    _settle(decision, runs)
    _move_on(decision, runs, np.flatnonzero(orderly))
    for run in np.flatnonzero(~orderly).tolist():
        group = int(runs.group[run])
        try:
            _walk(decision, documents, group, rows[runs.begin[run] : runs.end[run]], drops)
        except BadSequence as error:
            raise (error if names is None else error.told(*names(group))) from None
    decision.replays.sort(key=lambda replay: replay.group)
    return decision


def replayed(replay: Replay, documents: Documents) -> npt.NDArray[np.bool_]:
    """Which of a group's documents, read again in the same order, are to be handed on for ``replay``.

    Those may reach beyond the span on both sides; ``documents.group`` is not looked at.
    """
    within = (documents.offset >= replay.begin) & (documents.offset < replay.end)
    within &= (documents.flag == Flag.CONTINUE) & (documents.clock <= np.uint64(replay.upto))
    clocks = np.where(within, documents.clock, np.uint64(0))
    passed = np.full(len(clocks), replay.after, np.uint64)
    np.maximum(np.maximum.accumulate(clocks[:-1]), passed[1:], out=passed[1:])
    return clocks > passed


@dataclass(frozen=True, slots=True, eq=False)
class _Bounds:
    """Where the groups stand, as columns."""

    last_commit: npt.NDArray[np.uint64]
    max_continue: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, before: Listing[Sequence]) -> _Bounds:
        return cls(
            np.array([each.last_commit for each in before], np.uint64),
            np.array([each.max_continue for each in before], np.uint64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Documents sorted by group, stable; each run is one group's, from row ``begin`` to ``end``."""

    rows: npt.NDArray[np.intp]
    flag: Column
    clock: Column
    offset: Column
    group: Column
    begin: npt.NDArray[np.intp]
    end: npt.NDArray[np.intp]

    @classmethod
    def of(cls, documents: Documents, rows: npt.NDArray[np.intp]) -> _Runs:
        group = documents.group[rows]
        begin = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
        return cls(
            rows,
            documents.flag[rows],
            documents.clock[rows],
            documents.offset[rows],
            group[begin],
            begin,
            np.append(begin[1:], len(rows)),
        )

    def orderly(self, bounds: _Bounds) -> npt.NDArray[np.bool_]:
        """For each run, whether all its clocks grow and no flag surprises."""
        last, most = bounds.last_commit[self.group], bounds.max_continue[self.group]
        passed = np.empty_like(self.clock)
        passed[1:] = self.clock[:-1]
        passed[self.begin] = np.maximum(last, most)
        opened = np.empty(len(self.flag), np.bool_)
        opened[1:] = self.flag[:-1] == Flag.CONTINUE
        opened[self.begin] = most > 0
        # An ack may have the clock of the last document that it commits.
        grows = (self.clock > passed) | ((self.clock == passed) & opened & (self.flag == Flag.ACK))
        fits = (
            (self.flag == Flag.CONTINUE) | (self.flag == Flag.ACK) | ((self.flag == Flag.OUTSIDE) & ~opened)
        )
        return np.logical_and.reduceat(grows & fits, self.begin)


def _by_group(group: Column, groups: int) -> npt.NDArray[np.intp]:
    """The rows in the order of their groups, stable."""
    if len(group) and not (int(group.min()) >= 0 and int(group.max()) < groups):
        raise ValueError(f"a document is of a group that is none of the {groups}")
    if np.all(group[1:] >= group[:-1]):
        return np.arange(len(group))
    # Numpy sorts short integers by their digits, in a fraction of the time.
    return np.argsort(group.astype(np.uint16) if groups <= 1 << 16 else group, kind="stable")


def _without_repetitions(
    documents: Documents, bounds: _Bounds, rows: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """The rows without what a second reading begins with.

    As long as nothing is open and no clock is beyond the last commit, every document is a repetition,
    whatever its flag.
    """
    if not len(rows):
        return rows
    group = documents.group[rows]
    is_news = (documents.clock[rows] > bounds.last_commit[group]) | (bounds.max_continue[group] > 0)
    if is_news.all():
        return rows
    begin = np.concatenate(([True], group[1:] != group[:-1]))
    news = np.cumsum(is_news)
    ahead = np.maximum.accumulate(np.where(begin, news - is_news, 0))
    return rows[news > ahead]


def _settle(decision: DocumentDecisions, runs: _Runs) -> None:
    """Verdicts of all documents as they are in orderly runs."""
    count = len(runs.rows)
    numbers = np.arange(count)
    is_ack = runs.flag == Flag.ACK
    ack = np.minimum.accumulate(np.where(is_ack, numbers, count)[::-1])[::-1]
    committed = ack < np.repeat(runs.end, runs.end - runs.begin)
    outside = runs.flag == Flag.OUTSIDE
    verdict = np.where(outside | committed, np.uint8(SETTLED), np.uint8(OPEN))
    verdict[is_ack] = DROPPED
    clock = np.where(outside, runs.clock, runs.clock[np.minimum(ack, count - 1)])
    decision.verdict[runs.rows] = verdict
    decision.commit[runs.rows] = np.where(verdict == SETTLED, clock, np.uint64(0))


def _move_on(decision: DocumentDecisions, runs: _Runs, orderly: npt.NDArray[np.intp]) -> None:
    """Where orderly runs leave their groups, and the replays that their first acks ask for."""
    numbers = np.arange(len(runs.rows))
    closes = runs.flag != Flag.CONTINUE
    closed = np.maximum.accumulate(np.where(closes, numbers, -1))
    first = np.minimum.accumulate(np.where(closes, numbers, len(numbers))[::-1])[::-1]
    begin, end = runs.begin[orderly], runs.end[orderly]
    last = closed[end - 1]
    has_closed = last >= begin
    opens = np.minimum(last + 1, len(numbers) - 1)
    columns = (
        runs.group[orderly],
        has_closed,
        runs.clock[np.maximum(last, 0)],
        np.where(last < end - 1, runs.clock[end - 1], np.uint64(0)),
        runs.offset[np.where(has_closed, opens, begin)],
        runs.offset[begin],
        runs.clock[np.minimum(first[begin], len(numbers) - 1)],
    )
    for group, commits, commit, most, opened, start, upto in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        before = decision.after[group]
        if commits and before.is_open:
            decision.replays.append(Replay(group, before.begin, start, before.last_commit, upto))
        base = Sequence(commit) if commits else before
        if most:
            base = Sequence(base.last_commit, most, base.begin if base.is_open else opened)
        decision.after[group] = base


def _walk(
    decision: DocumentDecisions, documents: Documents, group: int, rows: npt.NDArray[np.intp], drops: bool
) -> None:
    """Decide on one group's documents with `step`."""
    sequence = decision.after[group]
    earlier = sequence if sequence.is_open else None
    verdicts, commits = [DROPPED] * len(rows), [0] * len(rows)
    waiting: list[int] = []
    columns = (documents.flag[rows], documents.clock[rows], documents.offset[rows])
    for number, (flag, clock, offset) in enumerate(zip(*(each.tolist() for each in columns), strict=True)):
        try:
            sequence, outcome = step(sequence, Flag(flag), clock, offset)
        except BadSequence as error:
            if not drops:
                raise
            decision.dropped.append((group, error))
            sequence, outcome = step_dropping(sequence, Flag(flag), clock, offset)
            waiting, earlier = [], None
        if outcome in _WAIT:
            waiting.append(number)
        elif outcome is DocumentOutcome.COMMITTED:
            verdicts[number], commits[number] = SETTLED, clock
        elif outcome in _CLOSE:
            if outcome is DocumentOutcome.ACK_COMMITS:
                for each in waiting:
                    verdicts[each], commits[each] = SETTLED, clock
                if earlier is not None:
                    start = int(documents.offset[rows[0]])
                    decision.replays.append(Replay(group, earlier.begin, start, earlier.last_commit, clock))
            waiting, earlier = [], None
    for each in waiting:
        verdicts[each] = OPEN
    decision.verdict[rows] = verdicts
    decision.commit[rows] = np.array(commits, np.uint64)
    decision.after[group] = sequence

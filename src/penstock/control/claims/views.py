"""What people and programs see of a run's partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.control.claims.codec import Brief, decode, skim
from penstock.control.claims.geometry import Geometry
from penstock.control.claims.model import (
    SETTLED,
    CheckpointRef,
    Failure,
    PartitionRecord,
    PartitionState,
    Shard,
)
from penstock.core.ranges import Range
from penstock.store.base import Store


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as it stands. ``alive`` tells whether a claimed one's lease still runs."""

    range: Range
    state: PartitionState
    token: int
    owner: str
    session: str
    alive: bool
    attempts: int
    errors: tuple[Failure, ...]
    checkpoints: tuple[CheckpointRef, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class Count:
    partitions: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """How many partitions and rows are in each state.

    ``expired`` is that part of ``claimed`` whose leases ran out, and which the next claim takes.
    ``failures`` counts failed attempts.
    """

    pending: Count
    claimed: Count
    completed: Count
    poisoned: Count
    expired: Count
    failures: int

    @property
    def total(self) -> Count:
        counts = (self.pending, self.claimed, self.completed, self.poisoned)
        return Count(sum(c.partitions for c in counts), sum(c.rows for c in counts))

    def count(self, state: PartitionState) -> Count:
        found: Count = getattr(self, state.value)
        return found

    def without_rows(self) -> PartitionSummary:
        """The same, of partitions that are no row ranges."""
        counts = ("pending", "claimed", "completed", "poisoned", "expired")
        return replace(self, **{name: replace(getattr(self, name), rows=0) for name in counts})


def together(summaries: Sequence[PartitionSummary]) -> PartitionSummary:
    """Several summaries as one."""

    def total(name: str) -> Count:
        counts = [getattr(each, name) for each in summaries]
        return Count(sum(c.partitions for c in counts), sum(c.rows for c in counts))

    return PartitionSummary(
        pending=total("pending"),
        claimed=total("claimed"),
        completed=total("completed"),
        poisoned=total("poisoned"),
        expired=total("expired"),
        failures=sum(each.failures for each in summaries),
    )


def documents(store: Store, prefix: str, begin: int = 0) -> Iterator[tuple[int, bytes]]:
    """Index and content of each shard document, in order, from index ``begin`` on."""
    after = f"{prefix}{begin - 1:09d}" if begin else ""
    while page := store.list(prefix, after, 64):
        for document in page:
            yield int(document.key.removeprefix(prefix)), document.value
        after = page[-1].key


def shards(store: Store, prefix: str, geometry: Geometry, begin: int, absent: bool) -> Iterator[Shard]:
    """Shards from index ``begin`` on, in order; with ``absent``, those without a document too."""
    position = begin
    for index, value in documents(store, prefix, begin):
        if absent:
            yield from _untouched(geometry, position, index)
        yield decode(value)
        position = index + 1
    if absent:
        yield from _untouched(geometry, position, geometry.shards)


def is_done(value: bytes) -> bool:
    """Whether every row of an encoded shard is completed or poisoned."""
    span, _, briefs = skim(value)
    return sum(brief.end - brief.begin for brief in briefs if brief.state in SETTLED) == span.rows


def views(
    store: Store, shard: Shard, states: Collection[PartitionState], begin: int, *, untouched: bool = True
) -> Iterator[PartitionView]:
    """The partitions of a shard that are in one of ``states`` and end after row ``begin``."""
    records: list[PartitionRecord] = [r for r in shard.records if r.state in states and r.range.end > begin]
    sessions = {record.session for record in records if record.session}
    alive = store.alive(sessions) if sessions else frozenset()
    if untouched and PartitionState.PENDING in states:
        free = (PartitionRecord(rows, PartitionState.PENDING) for rows in shard.free() if rows.end > begin)
        records = sorted([*records, *free], key=lambda record: record.range.begin)
    for r in records:
        yield PartitionView(
            r.range,
            r.state,
            r.token,
            r.owner,
            r.session,
            r.session in alive,
            r.attempts,
            r.errors,
            r.checkpoints,
            r.digest,
        )


def summarize(store: Store, prefix: str, geometry: Geometry) -> PartitionSummary:
    """Count from the documents that exist; what was never touched is arithmetic."""
    tally = _Tally()
    for _, value in documents(store, prefix):
        tally.add(*skim(value))
    tally.partitions[PartitionState.PENDING] += geometry.partitions
    tally.rows[PartitionState.PENDING] += geometry.total_rows
    dead = set(tally.sessions) - store.alive(tally.sessions.keys())
    expired = Count(sum(tally.sessions[s] for s in dead), sum(tally.session_rows[s] for s in dead))
    counts = {state.value: Count(tally.partitions[state], tally.rows[state]) for state in PartitionState}
    return PartitionSummary(**counts, expired=expired, failures=tally.failures)


class _Tally:
    """Counts of shards, by state and by session; what a shard holds is taken off the untouched."""

    def __init__(self) -> None:
        self.partitions: Counter[PartitionState] = Counter()
        self.rows: Counter[PartitionState] = Counter()
        self.sessions: Counter[str] = Counter()
        self.session_rows: Counter[str] = Counter()
        self.failures = 0

    def add(self, span: Range, grid: int, briefs: Sequence[Brief]) -> None:
        self.partitions[PartitionState.PENDING] -= _cells(span.begin, span.end, grid)
        self.rows[PartitionState.PENDING] -= span.rows
        free = span.begin
        for begin, end, state, session, attempts in briefs:
            self._free(free, begin, grid)
            free = end
            self.partitions[state] += 1
            self.rows[state] += end - begin
            self.failures += attempts
            if session:
                self.sessions[session] += 1
                self.session_rows[session] += end - begin
        self._free(free, span.end, grid)

    def _free(self, begin: int, end: int, grid: int) -> None:
        if begin < end:
            self.partitions[PartitionState.PENDING] += _cells(begin, end, grid)
            self.rows[PartitionState.PENDING] += end - begin


def _cells(begin: int, end: int, grid: int) -> int:
    """How many partitions a stretch of free rows makes."""
    return -(-end // grid) - begin // grid


def _untouched(geometry: Geometry, begin: int, end: int) -> Iterator[Shard]:
    for index in range(begin, end):
        yield Shard(geometry.span(index), geometry.partition_rows)

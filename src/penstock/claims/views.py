"""What people and programs see of a run's partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from penstock.claims.codec import decode
from penstock.claims.geometry import Geometry
from penstock.claims.model import CheckpointRef, Failure, Record, Shard, State
from penstock.ranges import Range
from penstock.store.base import Store


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition as it stands. ``alive`` tells whether a claimed one's lease still runs."""

    range: Range
    state: State
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
class Summary:
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

    def count(self, state: State) -> Count:
        found: Count = getattr(self, state.value)
        return found


def shards(
    store: Store, prefix: str, geometry: Geometry, begin: int, absent: bool
) -> Iterator[tuple[int, Shard]]:
    """Shards from index ``begin`` on, in order; with ``absent``, those without a document too."""
    position = begin
    after = f"{prefix}{begin - 1:09d}" if begin else ""
    while page := store.list(prefix, after, 64):
        for document in page:
            index = int(document.key.removeprefix(prefix))
            if absent:
                yield from _untouched(geometry, position, index)
            yield index, decode(document.value)
            position = index + 1
        after = page[-1].key
    if absent:
        yield from _untouched(geometry, position, geometry.shards)


def views(
    store: Store, shard: Shard, states: Collection[State], begin: int, *, untouched: bool = True
) -> Iterator[PartitionView]:
    """The partitions of a shard that are in one of ``states`` and end after row ``begin``."""
    records: list[Record] = [r for r in shard.records if r.state in states and r.range.end > begin]
    sessions = {record.session for record in records if record.session}
    alive = store.alive(sessions) if sessions else frozenset()
    if untouched and State.PENDING in states:
        free = (Record(rows, State.PENDING) for rows in shard.free() if rows.end > begin)
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


def summarize(store: Store, prefix: str, geometry: Geometry) -> Summary:
    """Count from the documents that exist; what was never touched is arithmetic."""
    tallies: dict[State, list[int]] = {state: [0, 0] for state in State}
    by_session: dict[str, list[int]] = {}
    failures, pieces, touched = 0, 0, 0
    for _, shard in shards(store, prefix, geometry, 0, absent=False):
        touched += 1
        pieces -= -(-shard.span.rows // shard.grid)
        pieces += sum(-(-gap.end // shard.grid) - gap.begin // shard.grid for gap in shard.gaps())
        for record in shard.records:
            rows = record.range.end - record.range.begin
            tally = tallies[record.state]
            tally[0] += 1
            tally[1] += rows
            failures += record.attempts
            if record.session:
                held = by_session.setdefault(record.session, [0, 0])
                held[0] += 1
                held[1] += rows
    covered = sum(rows for _, rows in tallies.values())
    tallies[State.PENDING][0] += geometry.partitions + pieces
    tallies[State.PENDING][1] += geometry.total_rows - covered
    dead = set(by_session) - store.alive(by_session.keys())
    expired = Count(sum(by_session[s][0] for s in dead), sum(by_session[s][1] for s in dead))
    counts = {state.value: Count(*tally) for state, tally in tallies.items()}
    return Summary(**counts, expired=expired, failures=failures)


def _untouched(geometry: Geometry, begin: int, end: int) -> Iterator[tuple[int, Shard]]:
    for index in range(begin, end):
        yield index, Shard(geometry.span(index), geometry.partition_rows)

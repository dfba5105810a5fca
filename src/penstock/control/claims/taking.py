"""What `ClaimPartitions` does: whose leases are over, what comes first, and explicit row ranges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, pairwise

from penstock.control.claims.commands import ClaimPartitions
from penstock.control.claims.model import (
    Alive,
    Answer,
    Grant,
    Granted,
    PartitionRecord,
    PartitionState,
    Refusal,
    Refused,
    Shard,
    failed,
)
from penstock.core.ranges import Range


def take(shard: Shard, command: ClaimPartitions, alive: Alive) -> tuple[Shard, Answer]:
    """Grant what the command asks for; the given shard comes back when nothing changed.

    A command that was granted something before gets the same again, for as long as it is claimed.
    """
    if not alive(command.session):
        return shard, Refused(Refusal.SESSION_LOST, f"the lease of {command.owner} has run out")
    if before := [record for record in shard.records if record.request == command.request]:
        return shard, _granted(_in_order(before, command))
    current = expire(shard, command.max_failures, alive)
    if command.ranges is None:
        chosen = list(islice(_candidates(current), command.count))
        kept = current.records
    else:
        refused = _refuse(current, command.ranges)
        if refused:
            return shard, refused
        chosen, kept = _carve(current, command.ranges)
    if not chosen:
        return current, Granted(())
    taken = [
        PartitionRecord(
            record.range,
            PartitionState.CLAIMED,
            record.token + 1,
            command.owner,
            command.session,
            record.attempts,
            record.errors,
            record.checkpoints,
            request=command.request,
        )
        for record in chosen
    ]
    records = list(kept)
    for record in taken:
        index = bisect_left(records, record.range.begin, key=_begin)
        replaces = index < len(records) and records[index].range.begin == record.range.begin
        records[index : index + replaces] = [record]
    return Shard(current.span, current.grid, tuple(records), current.memories), _granted(taken)


def _granted(records: Iterable[PartitionRecord]) -> Granted:
    return Granted(tuple(Grant(r.range, r.token, r.attempts, r.checkpoints) for r in records))


def _in_order(records: list[PartitionRecord], command: ClaimPartitions) -> list[PartitionRecord]:
    """As they were asked for, if they were asked for by their rows."""
    ranges = command.ranges
    return records if ranges is None else sorted(records, key=lambda record: ranges.index(record.range))


def expire(shard: Shard, max_failures: int, alive: Alive) -> Shard:
    """Take claims from sessions that are over.

    It counts as a failure, because a partition that kills its process must be poisoned some day.
    """
    lost = [r for r in shard.records if r.state is PartitionState.CLAIMED and not alive(r.session)]
    if not lost:
        return shard
    after = {r.range: failed(r, f"the lease of {r.owner} ran out", max_failures) for r in lost}
    return replace(shard, records=tuple(after.get(record.range, record) for record in shard.records))


def _candidates(shard: Shard) -> Iterator[PartitionRecord]:
    """What can be claimed, best first: what is begun, what is untouched, what failed least often.

    What is begun frees its checkpoints when it is finished, and one failure may be no more than its
    owner's end. After two it waits its turn like others: when a service is away for a moment, each
    partition must not fail on it until it is poisoned, one after the other.
    """
    pending = [record for record in shard.records if record.state is PartitionState.PENDING]
    pending.sort(key=lambda record: record.attempts)
    yield from (record for record in pending if _goes_on(record))
    for rows in shard.free():
        yield PartitionRecord(rows, PartitionState.PENDING)
    yield from (record for record in pending if not _goes_on(record))


def _goes_on(record: PartitionRecord) -> bool:
    return bool(record.checkpoints) and record.attempts <= 1


def _refuse(shard: Shard, ranges: tuple[Range, ...]) -> Refused | None:
    """Why not all of these ranges can be had, if so."""
    ordered = sorted(ranges)
    for one, other in pairwise(ordered):
        if one.overlaps(other):
            return Refused(Refusal.OVERLAP, f"rows {one} and {other} were asked for at once and overlap")
    for rows in ranges:
        if not (shard.span.begin <= rows.begin and rows.end <= shard.span.end):
            return Refused(Refusal.UNKNOWN, f"rows {rows} are not within {shard.span}")
        for record in shard.records:
            if record.state is not PartitionState.PENDING and record.range.overlaps(rows):
                by = f" by {record.owner}" if record.owner else ""
                return Refused(
                    Refusal.OVERLAP, f"rows {rows} overlap {record.range}, which is {record.state}{by}"
                )
    return None


def _carve(
    shard: Shard, ranges: tuple[Range, ...]
) -> tuple[list[PartitionRecord], tuple[PartitionRecord, ...]]:
    """The ranges as pending records, and the other records with those rows cut out of them.

    Both parts of a cut record keep its token and failures, so that tokens grow for every row; its
    checkpoints hold other rows than either part, and are forgotten.
    """
    chosen: list[PartitionRecord] = []
    records = shard.records
    for rows in ranges:
        touched = [record for record in records if record.range.overlaps(rows)]
        if [record.range for record in touched] == [rows]:
            chosen += touched
            continue
        chosen.append(_united(rows, touched))
        rest = (piece for record in records for piece in _without(record, rows))
        records = tuple(sorted(rest, key=_begin))
    return chosen, records


def _united(rows: Range, touched: list[PartitionRecord]) -> PartitionRecord:
    worst = max(
        touched, key=lambda record: record.attempts, default=PartitionRecord(rows, PartitionState.PENDING)
    )
    token = max((record.token for record in touched), default=0)
    return PartitionRecord(rows, PartitionState.PENDING, token, attempts=worst.attempts, errors=worst.errors)


def _without(record: PartitionRecord, rows: Range) -> Iterator[PartitionRecord]:
    if not record.range.overlaps(rows):
        yield record
        return
    if record.range.begin < rows.begin:
        yield replace(record, range=Range(record.range.begin, rows.begin), checkpoints=())
    if rows.end < record.range.end:
        yield replace(record, range=Range(rows.end, record.range.end), checkpoints=())


def _begin(record: PartitionRecord) -> int:
    return record.range.begin

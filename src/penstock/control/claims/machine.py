"""The claim machine: pure functions from a shard and a command to a shard and an answer.

::

            Claim                Ack
    Pending ─────► Claimed ───────────► Completed
       ▲ ▲            │ Release, Fail, ForceRelease, or its session ended
       │ └────────────┘
       │ Retry        │ the last allowed failure, or Poison
       └───────── Poisoned ◄──┘

There is no clock and no I/O. Whether an owner lives is what ``alive`` says about its session, and
the caller writes the shard only if the document is still the one that was read. A refused command
returns the very shard it was given.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from penstock.control.claims import commands as c
from penstock.control.claims.model import (
    Accepted,
    Alive,
    Answer,
    Memory,
    PartitionRecord,
    PartitionState,
    Refusal,
    Refused,
    Shard,
    failed,
    with_error,
)
from penstock.control.claims.taking import take
from penstock.core.ranges import Range

REMEMBERED = 32
"""Answers that a shard keeps; so many commands at most may be applied before it is written."""


def apply(shard: Shard, command: c.Command, alive: Alive) -> tuple[Shard, Answer]:
    """What becomes of a shard, and what the asker hears.

    A request that is remembered gets the same answer and changes nothing. Commands that recognise
    what they did (claim, renew, ack, checkpoints) are not remembered.
    """
    for memory in shard.memories:
        if memory.request == command.request:
            return shard, memory.answer
    after, answer = _run(shard, command, alive)
    if after is shard or not isinstance(answer, Accepted) or isinstance(command, _REPEATABLE):
        return after, answer
    memories = (*shard.memories, Memory(command.request, answer))[-REMEMBERED:]
    return replace(after, memories=memories), answer


_REPEATABLE = (c.Renew, c.AckPartition, c.SaveCheckpoint, c.DropCheckpoint)


def fence(record: PartitionRecord | None, command: c.Held, alive: Alive) -> Refused | None:
    """The one gate of every owner's command: None if it holds the partition, else why not.

    A session that is over holds nothing, even if nobody has taken the partition over yet.
    """
    if record is None or record.token != command.token or record.session != command.session:
        return _stale(command.range, command.token)
    if record.state is not PartitionState.CLAIMED:
        return _stale(command.range, command.token)
    if not alive(command.session):
        return Refused(
            Refusal.SESSION_LOST, f"the lease on rows {command.range} (token {command.token}) has run out"
        )
    return None


def _run(shard: Shard, command: c.Command, alive: Alive) -> tuple[Shard, Answer]:
    match command:
        case c.ClaimPartitions():
            return take(shard, command, alive)
        case c.Held():
            return _held(shard, command, alive)
        case c.Poison():
            return _poison(shard, command)
        case c.RetryPartition():
            return _retry(shard, command)
        case c.ForceRelease():
            return _force_release(shard, command)
    raise TypeError(f"not a claim command: {command!r}")


def _held(shard: Shard, command: c.Held, alive: Alive) -> tuple[Shard, Answer]:
    index, record = find(shard, command.range)
    if record is not None and _is_replayed_ack(record, command):
        return shard, Accepted(record.state)
    refused = fence(record, command, alive)
    if refused or record is None:
        return shard, refused or _stale(command.range, command.token)
    after = _change(command, record)
    return (shard if after is record else put(shard, index, after)), Accepted(after.state)


def _is_replayed_ack(record: PartitionRecord, command: c.Held) -> bool:
    return (
        isinstance(command, c.AckPartition)
        and record.state is PartitionState.COMPLETED
        and (record.token, record.digest) == (command.token, command.digest)
    )


def _change(command: c.Held, record: PartitionRecord) -> PartitionRecord:
    """What a command of its rightful owner makes of a record; the same one if it stays as it is."""
    match command:
        case c.Renew():
            return record
        case c.AckPartition():
            return _acked(record, command.digest)
        case c.Release():
            return replace(record, state=PartitionState.PENDING, owner="", session="", request="")
        case c.Fail():
            return failed(record, command.error, command.max_failures)
        case c.SaveCheckpoint():
            if command.ref in record.checkpoints:
                return record
            earlier = tuple(ref for ref in record.checkpoints if ref.stage < command.ref.stage)
            return replace(record, checkpoints=(*earlier, command.ref))
        case c.DropCheckpoint():
            left = tuple(ref for ref in record.checkpoints if ref.stage != command.stage)
            return record if left == record.checkpoints else replace(record, checkpoints=left)
    raise TypeError(f"not an owner's command: {command!r}")


def _acked(record: PartitionRecord, digest: str) -> PartitionRecord:
    """Completed: nobody owns it any more, and its checkpoints have served."""
    return PartitionRecord(
        record.range,
        PartitionState.COMPLETED,
        record.token,
        record.owner,
        attempts=record.attempts,
        errors=record.errors,
        digest=digest,
    )


def _poison(shard: Shard, command: c.Poison) -> tuple[Shard, Answer]:
    index, record = find(shard, command.range)
    if record is None:
        if any(r.range.overlaps(command.range) for r in shard.records):
            return shard, _unknown(command.range)
        record = PartitionRecord(command.range, PartitionState.PENDING)
        shard = replace(shard, records=(*shard.records[:index], record, *shard.records[index:]))
    if record.state is PartitionState.COMPLETED:
        return shard, _wrong(record, "set aside")
    if record.state is PartitionState.POISONED:
        return shard, Accepted(record.state)
    poisoned = replace(
        record,
        state=PartitionState.POISONED,
        owner="",
        session="",
        request="",
        errors=with_error(record, command.reason),
    )
    return put(shard, index, poisoned), Accepted(PartitionState.POISONED)


def _retry(shard: Shard, command: c.RetryPartition) -> tuple[Shard, Answer]:
    index, record = find(shard, command.range)
    if record is None:
        return shard, _unknown(command.range)
    if record.state is PartitionState.PENDING:
        return shard, Accepted(record.state)
    if record.state is not PartitionState.POISONED:
        return shard, _wrong(record, "retried")
    return put(shard, index, replace(record, state=PartitionState.PENDING, attempts=0)), Accepted(
        PartitionState.PENDING
    )


def _force_release(shard: Shard, command: c.ForceRelease) -> tuple[Shard, Answer]:
    index, record = find(shard, command.range)
    if record is None:
        return shard, _unknown(command.range)
    if record.state is PartitionState.PENDING:
        return shard, Accepted(record.state)
    if record.state is not PartitionState.CLAIMED:
        return shard, _wrong(record, "released")
    token = record.token + 1
    freed = replace(record, state=PartitionState.PENDING, token=token, owner="", session="", request="")
    return put(shard, index, freed), Accepted(PartitionState.PENDING)


def find(shard: Shard, rows: Range) -> tuple[int, PartitionRecord | None]:
    """The record of exactly these rows, and where it is or would be."""
    index = bisect_left(shard.records, rows.begin, key=lambda record: record.range.begin)
    if index < len(shard.records) and shard.records[index].range == rows:
        return index, shard.records[index]
    return index, None


def put(shard: Shard, index: int, record: PartitionRecord) -> Shard:
    """The shard with one record replaced."""
    records = (*shard.records[:index], record, *shard.records[index + 1 :])
    return Shard(shard.span, shard.grid, records, shard.memories)


def _stale(rows: Range, token: int) -> Refused:
    return Refused(Refusal.STALE_TOKEN, f"token {token} for rows {rows} is no longer the current one")


def _unknown(rows: Range) -> Refused:
    return Refused(Refusal.UNKNOWN, f"there is no partition of exactly the rows {rows} that was ever claimed")


def _wrong(record: PartitionRecord, what: str) -> Refused:
    return Refused(Refusal.WRONG_STATE, f"rows {record.range} are {record.state} and cannot be {what}")

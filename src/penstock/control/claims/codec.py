"""A shard as bytes: a JSON list per line, first a header, then records, then remembered answers.

A line stands for itself, so that a record which did not change is neither encoded nor parsed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.control.claims.model import (
    Accepted,
    CheckpointRef,
    Failure,
    Memory,
    PartitionRecord,
    PartitionState,
    Shard,
)
from penstock.core.codec import UPGRADE
from penstock.core.ranges import Range
from penstock.errors import CorruptFile

FORMAT = 1

_CODES = {
    PartitionState.PENDING: "p",
    PartitionState.CLAIMED: "c",
    PartitionState.COMPLETED: "d",
    PartitionState.POISONED: "x",
}
_STATES = {code: state for state, code in _CODES.items()}
# Owner, digest, session, request, attempts, checkpoints, errors: a line ends where only these would follow.
_DEFAULTS: list[Any] = ["", "", "", "", 0, [], []]
_dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


_quote = json.encoder.encode_basestring


def encode(shard: Shard) -> bytes:
    """The inverse of `decode`. A completed partition takes about 40 bytes and its digest."""
    header = [FORMAT, shard.span.begin, shard.span.end, shard.grid, len(shard.records)]
    lines = [_dump(header)]
    lines += [record.line or _record_line(record) for record in shard.records]
    lines += [memory.line or _memory_line(memory) for memory in shard.memories]
    return "\n".join(lines).encode()


def decode(data: bytes) -> Shard:
    """The shard that was encoded. Raises `CorruptFile` for anything else."""
    with _readable():
        (begin, end, grid), records, memories = _split(data)
        parsed = tuple(map(_parse_record, records))
        return Shard(Range(begin, end), grid, parsed, tuple(map(_parse_memory, memories)))


class Brief(NamedTuple):
    """What counting needs of a record."""

    begin: int
    end: int
    state: PartitionState
    session: str
    attempts: int


def skim(data: bytes) -> tuple[Range, int, list[Brief]]:
    """Span, grid and records of an encoded shard, for those who look at very many of them."""
    with _readable():
        (begin, end, grid), lines, _ = _split(data)
        records = json.loads(f"[{','.join(lines)}]")
        return Range(begin, end), grid, [_brief(*record) for record in records]


def _brief(begin: int, end: int, code: str, *rest: Any) -> Brief:
    session = rest[3] if len(rest) > 3 else ""
    attempts = rest[5] if len(rest) > 5 else 0
    return Brief(begin, end, _STATES[code], session, attempts)


def _split(data: bytes) -> tuple[tuple[int, int, int], list[str], list[str]]:
    header, *lines = data.decode().split("\n")
    found, begin, end, grid, count = json.loads(header)
    if type(found) is int and found > FORMAT:
        raise CorruptFile(
            f"a shard document of the store has format {found}, "
            f"and this version of Penstock knows format {FORMAT}",
            hint=UPGRADE,
        )
    if found != FORMAT:
        raise ValueError(f"its format is {found!r}")
    if len(lines) < count:
        raise ValueError(f"it has {len(lines)} of {count} records")
    return (begin, end, grid), lines[:count], lines[count:]


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptFile(
            f"a shard document of the store cannot be read: {error}",
            hint="restore the store",
        ) from error


def _record_line(record: PartitionRecord) -> str:
    # Written by hand, since this runs for every claim and every ack; only the rare rest is general.
    line = f'[{record.range.begin},{record.range.end},"{_CODES[record.state]}",{record.token}'
    line += f",{_quote(record.owner)},{_quote(record.digest)}"
    rare = record.attempts or record.checkpoints or record.errors
    if record.session or record.request or rare:
        line += f",{_quote(record.session)},{_quote(record.request)}"
    if rare:
        errors = [[failure.owner, failure.error] for failure in record.errors]
        line += f",{record.attempts},{_dump(_refs(record.checkpoints))},{_dump(errors)}"
    line += "]"
    object.__setattr__(record, "line", line)
    return line


@lru_cache(maxsize=8192)
def _parse_record(line: str) -> PartitionRecord:
    begin, end, code, token, *rest = json.loads(line)
    owner, digest, session, request, attempts, refs, errors = rest + _DEFAULTS[len(rest) :]
    record = PartitionRecord(
        Range(begin, end),
        _STATES[code],
        token,
        owner,
        session,
        attempts,
        tuple(Failure(*failure) for failure in errors),
        tuple(CheckpointRef(*ref) for ref in refs),
        digest,
        request,
    )
    object.__setattr__(record, "line", line)
    return record


def _memory_line(memory: Memory) -> str:
    line = _dump([memory.request, _CODES[memory.answer.state]])
    object.__setattr__(memory, "line", line)
    return line


@lru_cache(maxsize=2048)
def _parse_memory(line: str) -> Memory:
    request, code = json.loads(line)
    memory = Memory(request, Accepted(_STATES[code]))
    object.__setattr__(memory, "line", line)
    return memory


def _refs(checkpoints: tuple[CheckpointRef, ...]) -> list[list[Any]]:
    return [[ref.stage, ref.token, ref.digest] for ref in checkpoints]

from __future__ import annotations

import pytest

from penstock.claims.codec import decode, encode, skim
from penstock.claims.model import (
    Accepted,
    CheckpointRef,
    Failure,
    Memory,
    Record,
    Shard,
    State,
)
from penstock.errors import CorruptFile
from penstock.ranges import Range

REFS = (CheckpointRef(0, 1, "é"), CheckpointRef(3, 2, "d"))


def test_everything_comes_back() -> None:
    shard = Shard(
        Range(1280, 2560),
        10,
        (
            Record(Range(1280, 1290), State.PENDING, 1),
            Record(Range(1290, 1300), State.CLAIMED, 2, 'a "b"\n', "s", request="q.1"),
            Record(
                Range(1300, 1310), State.CLAIMED, 2, "a", "s", 1, (Failure("a", "x\ny"),), REFS, "", "q.2"
            ),
            Record(Range(1310, 1320), State.COMPLETED, 3, "a", digest="abc"),
            Record(Range(1320, 1321), State.COMPLETED, 3, "a", "", 2, (Failure("", ""),), (), "abc"),
            Record(Range(1330, 1340), State.POISONED, 3, errors=(Failure("b", "boom"),)),
        ),
        (
            Memory("r1", Accepted(State.PENDING)),
            Memory("r2", Accepted(State.POISONED)),
        ),
    )
    assert decode(encode(shard)) == shard
    assert encode(decode(encode(shard))) == encode(shard)
    span, grid, briefs = skim(encode(shard))
    assert (span, grid) == (shard.span, shard.grid)
    assert briefs == [(r.range.begin, r.range.end, r.state, r.session, r.attempts) for r in shard.records]
    assert decode(encode(Shard(Range(0, 5), 10))) == Shard(Range(0, 5), 10)


def test_a_full_shard_stays_small() -> None:
    records = tuple(
        Record(Range(i * 1000, i * 1000 + 1000), State.COMPLETED, 1, "worker-1", digest="0123456789abcdef")
        for i in range(128)
    )
    assert len(encode(Shard(Range(0, 128_000), 1000, records))) < 128 * 55


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"{}",
        b"[1,0,10,1,3]",
        b"[1,0,10,1,1]\n[0,5]",
        b'[1,0,10,1,1]\n[0,5,"?",1]',
        b"[1,9,3,1,0]",
    ],
)
def test_what_is_no_shard_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFile, match="cannot be read"):
        decode(data)


def test_a_newer_format_is_named() -> None:
    with pytest.raises(CorruptFile, match="format 2"):
        decode(b"[2,0,10,1,0]")

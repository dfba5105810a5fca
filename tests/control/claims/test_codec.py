from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.claims.codec import decode, encode, skim
from penstock.control.claims.geometry import SHARD_PARTITIONS
from penstock.control.claims.model import (
    Accepted,
    CheckpointRef,
    Failure,
    Memory,
    PartitionRecord,
    PartitionState,
    Shard,
    failed,
)
from penstock.core.ranges import Range
from penstock.errors import CorruptFile
from penstock.store.backends import MAX_DOCUMENT

REFS = (CheckpointRef(0, 1, "é"), CheckpointRef(3, 2, "d"))


def test_everything_comes_back() -> None:
    shard = Shard(
        Range(1280, 2560),
        10,
        (
            PartitionRecord(Range(1280, 1290), PartitionState.PENDING, 1),
            PartitionRecord(Range(1290, 1300), PartitionState.CLAIMED, 2, 'a "b"\n', "s", request="q.1"),
            PartitionRecord(
                Range(1300, 1310),
                PartitionState.CLAIMED,
                2,
                "a",
                "s",
                1,
                (Failure("a", "x\ny"),),
                REFS,
                "",
                "q.2",
            ),
            PartitionRecord(Range(1310, 1320), PartitionState.COMPLETED, 3, "a", digest="abc"),
            PartitionRecord(
                Range(1320, 1321), PartitionState.COMPLETED, 3, "a", "", 2, (Failure("", ""),), (), "abc"
            ),
            PartitionRecord(Range(1330, 1340), PartitionState.POISONED, 3, errors=(Failure("b", "boom"),)),
        ),
        (
            Memory("r1", Accepted(PartitionState.PENDING)),
            Memory("r2", Accepted(PartitionState.POISONED)),
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
        PartitionRecord(
            Range(i * 1000, i * 1000 + 1000),
            PartitionState.COMPLETED,
            1,
            "worker-1",
            digest="0123456789abcdef",
        )
        for i in range(128)
    )
    assert len(encode(Shard(Range(0, 128_000), 1000, records))) < 128 * 55


@pytest.mark.parametrize("letter", ["x", "ж", "\N{PILE OF POO}", "\n"])
def test_a_shard_in_which_everything_failed_still_fits_its_document(letter: str) -> None:
    records = []
    for number in range(SHARD_PARTITIONS):
        rows, owner = (
            Range(number * 1000, (number + 1) * 1000),
            "a-rather-long-host-name.example.internal-4711",
        )
        refs = tuple(CheckpointRef(stage, 1, "a" * 64) for stage in range(8))
        record = PartitionRecord(rows, PartitionState.CLAIMED, 3, owner, checkpoints=refs)
        for attempt in range(9):
            error = f"attempt {attempt} " + letter * 10_000
            record = replace(failed(record, error, 9), owner=owner)
        assert record.errors[-1].error.startswith("attempt 8 ")
        records.append(record)
    shard = Shard(Range(0, SHARD_PARTITIONS * 1000), 1000, tuple(records))
    assert len(encode(shard)) < MAX_DOCUMENT
    assert decode(encode(shard)) == shard


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

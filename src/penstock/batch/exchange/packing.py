"""Which buckets make a key range: decided once, when all rows of an exchange are written.

Everything here is a pure function of what was written. Instances that look at the same files make the same
plan, byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappush, heapreplace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from penstock.batch.exchange.run_files import ExchangeFile, bucket_totals
from penstock.core.codec import SORTED, DocumentFormat, Members, from_rows, to_rows
from penstock.errors import UsageError

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The buckets from ``begin_bucket`` (included) to ``end_bucket`` (excluded), and what is in them."""

    begin_bucket: int
    end_bucket: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """The key ranges of an exchange."""

    buckets: int
    ranges: tuple[KeyRange, ...]
    """The largest first: what takes longest is begun first. Those of sorted rows are in their order."""
    without: tuple[str, ...]
    """The partitions whose rows are not there because they are poisoned, sorted."""
    made_of: str
    """Digest of what the plan was made of."""
    boundaries: str | None = None
    """For sorted rows, where each range but the first begins: see `sorted_ranges`."""

    def encode(self) -> bytes:
        return PLAN.encode(self)

    @classmethod
    def decode(cls, where: str, data: bytes) -> ExchangePlan:
        return PLAN.decode(where, data)

    def __post_init__(self) -> None:
        """Raises `ValueError` unless every bucket is in exactly one range."""
        ordered = sorted(self.ranges, key=lambda each: each.begin_bucket)
        ends = [0, *(each.end_bucket for each in ordered)]
        if [each.begin_bucket for each in ordered] != ends[:-1] or ends[-1] != self.buckets:
            raise ValueError(f"the ranges do not have each of {self.buckets} buckets once")
        if any(each.begin_bucket >= each.end_bucket for each in ordered):
            raise ValueError("there is a range without buckets")


def _pack_members(found: Members) -> Members:
    return {**found, "ranges": to_rows(found["ranges"])}


def _unpack_members(found: Members) -> Members:
    return {**found, "ranges": from_rows(KeyRange, found["ranges"])}


PLAN = DocumentFormat(
    ExchangePlan,
    "the plan of an exchange",
    # The bytes are the same whoever writes them.
    text=SORTED,
    omits=("boundaries",),
    pack=_pack_members,
    unpack=_unpack_members,
)


def plan(
    files: Iterable[ExchangeFile],
    *,
    buckets: int,
    target_bytes: int,
    at_least: int,
    made_of: Mapping[str, str],
    without: Iterable[str] = (),
) -> ExchangePlan:
    """The plan for the files of all tables of an exchange, in any order.

    ``made_of`` has the digest of the manifest of each partition that the files are from, by its name.
    """
    rows, sizes = bucket_totals(files, buckets)
    ranges = pack(rows, sizes, target_bytes, at_least)
    lacking = tuple(sorted(set(without)))
    return ExchangePlan(
        buckets,
        tuple(sorted(ranges, key=lambda each: (-each.bytes, -each.rows, each.begin_bucket))),
        lacking,
        digest_of(made_of, lacking),
    )


def plan_of_one(
    files: Iterable[ExchangeFile], *, made_of: Mapping[str, str], without: Iterable[str] = ()
) -> ExchangePlan:
    """The plan for files without buckets: one range has everything."""
    written = [each.file for each in files]
    only = KeyRange(0, 1, sum(each.rows for each in written), sum(each.bytes for each in written))
    lacking = tuple(sorted(set(without)))
    return ExchangePlan(1, (only,), lacking, digest_of(made_of, lacking))


def digest_of(made_of: Mapping[str, str], without: Iterable[str]) -> str:
    """What tells whether a plan was made of these manifests, and without these partitions."""
    facts = [dict(made_of), sorted(set(without))]
    return hashlib.sha256(SORTED.encode(facts).encode()).hexdigest()[:32]


def pack(rows: Array, sizes: Array, target_bytes: int, at_least: int) -> tuple[KeyRange, ...]:
    """Ranges of consecutive buckets, in order, with as few bytes in the largest as is possible.

    ``rows`` and ``sizes`` are what each bucket has of rows and bytes. There are as many ranges as are needed
    for ``target_bytes`` in each, and ``at_least`` so many. There are fewer if otherwise some had no rows; but
    there is one if there are no rows at all. A bucket that alone has the even share of a range, or more, is
    with no other that has rows. What lies between such buckets can make more ranges necessary.
    """
    if target_bytes < 1 or at_least < 1 or not len(rows):
        raise UsageError(f"{len(rows)} buckets cannot make {at_least} ranges of {target_bytes} bytes")
    filled = np.flatnonzero(rows)
    if not len(filled):
        return (KeyRange(0, len(rows), 0, 0),)
    # A bucket with rows weighs something, although its share of a file's bytes may be none.
    weights = np.maximum(sizes[filled], 1)
    count = min(len(filled), max(at_least, -(-int(sizes.sum()) // target_bytes)))
    starts = _starts(weights, count)
    begins = [0, *filled[starts[1:]].tolist(), len(rows)]
    return tuple(
        KeyRange(begin, end, int(rows[begin:end].sum()), int(sizes[begin:end].sum()))
        for begin, end in pairwise(begins)
    )


def _starts(weights: Array, count: int) -> list[int]:
    """The first of each of ``count`` ranges, or of more for the sake of heavy ones."""
    upto = np.concatenate((np.zeros(1, np.int64), np.cumsum(weights)))
    share = -(-int(upto[-1]) // count)
    heavy = np.flatnonzero(weights >= share)
    walls = sorted({0, *heavy.tolist(), *(heavy + 1).tolist(), len(weights)})
    light = weights[weights < share]
    most = max(count, len(walls) - 1)
    low, high = int(light.max(initial=1)), max(1, *(int(upto[b] - upto[a]) for a, b in pairwise(walls)))
    while low < high:
        cap = (low + high) // 2
        if len(_greedy(upto, walls, cap, most)) <= most:
            high = cap
        else:
            low = cap + 1
    return _halved(upto, _greedy(upto, walls, low, most), most)


def _greedy(upto: Array, walls: list[int], cap: int, most: int) -> list[int]:
    """The first of each range, if as much as ``cap`` allows goes into each, and no range goes past a wall.

    One that is heavier than ``cap`` is a range. It ends early when there are more than ``most``.
    """
    starts: list[int] = []
    for begin, end in pairwise(walls):
        at = begin
        while at < end and len(starts) <= most:
            starts.append(at)
            at = min(end, max(at + 1, int(np.searchsorted(upto, upto[at] + cap, side="right")) - 1))
    return starts


def _halved(upto: Array, starts: list[int], count: int) -> list[int]:
    """Cut the heaviest range in two, again and again, until there are ``count``."""
    ends = [*starts[1:], len(upto) - 1]
    # Ranges of one bucket cannot be cut: they are the last to be looked at.
    ranges = [_entry(upto, begin, end) for begin, end in zip(starts, ends, strict=True)]
    heapify(ranges)
    found = set(starts)
    while len(found) < count:
        _, begin, end = ranges[0]
        middle = int(np.searchsorted(upto, (int(upto[begin]) + int(upto[end])) // 2, side="right")) - 1
        lighter = [each for each in (middle, middle + 1) if begin < each < end]
        at = min(lighter, key=lambda each: (max(upto[each] - upto[begin], upto[end] - upto[each]), each))
        found.add(at)
        heapreplace(ranges, _entry(upto, begin, at))
        heappush(ranges, _entry(upto, at, end))
    return sorted(found)


def _entry(upto: Array, begin: int, end: int) -> tuple[int, int, int]:
    return (0 if end - begin == 1 else -int(upto[end] - upto[begin]), begin, end)

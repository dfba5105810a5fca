"""How many rows a partition has where nobody says so.

A partition costs about as much as reading half a million rows, whatever its size, and Spark reads whole
Parquet files faster than Python workers read parts of them. Large partitions are therefore cheap, and whole
files cheaper still. What speaks against them is only what a crash costs: a partition is computed again from
its last checkpoint. The number of cores does not matter, because all of them work on each partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

TARGET_ROWS = 2_500_000
TARGET_BYTES = 256 << 20
WHOLE_BYTES = 1 << 30
"""So much of whole files may be one partition."""
_UNEVEN_FILES = 4
"""With so many files in a partition, most of its rows are in files that it has whole, wherever it begins."""


@dataclass(frozen=True, slots=True)
class FileSize:
    """What a file has of rows and bytes, and the rows at which it can be entered, its end included."""

    rows: int
    bytes: int
    entries: Sequence[int] = ()


def partition_rows(files: Sequence[FileSize]) -> int:
    """The rows of a partition, from the sizes of an input's files in their order."""
    filled = [file for file in files if file.rows]
    if not filled:
        return TARGET_ROWS
    rows, size = sum(file.rows for file in filled), sum(file.bytes for file in filled)
    target = max(1, min(TARGET_ROWS, rows * TARGET_BYTES // max(1, size)))
    most = max(target, rows * WHOLE_BYTES // max(1, size))
    largest = max(file.rows for file in filled)
    if rows <= target:
        return rows
    if _even(filled):
        if largest <= most:
            # As many files as the target has room for, but at least one.
            return largest * max(1, target // largest)
    elif (several := _UNEVEN_FILES * largest) <= most:
        return max(target, several)
    return _whole_groups(filled, target)


def _even(files: Sequence[FileSize]) -> bool:
    """Whether partitions of a multiple of the first file's rows begin with a file each."""
    *before, last = [file.rows for file in files]
    return not before or (len(set(before)) == 1 and last <= before[0])


def _whole_groups(files: Sequence[FileSize], target: int) -> int:
    """The target, or a little less, so that no group of rows is decoded for two partitions."""
    steps = {b - a for file in files for a, b in list(pairwise(file.entries))[:-1]}
    group = steps.pop() if len(steps) == 1 else 0
    return target - target % group if 0 < group <= target else target

"""How the rows of an input are cut into partitions, and partitions into shards."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import UsageError
from penstock.ranges import Range

SHARD_PARTITIONS = 128
"""Partitions of one shard document: few enough that it stays small, since each claim rewrites it."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """A grid of ``partition_rows`` over ``total_rows``; the last partition may be shorter.

    A shard spans `SHARD_PARTITIONS` cells of the grid, and no partition crosses its bounds.
    """

    total_rows: int
    partition_rows: int

    def __post_init__(self) -> None:
        if self.total_rows < 0 or self.partition_rows < 1:
            raise UsageError(
                f"cannot cut {self.total_rows} rows into partitions of {self.partition_rows}",
                hint="give at least one row per partition",
            )

    @property
    def shard_rows(self) -> int:
        return SHARD_PARTITIONS * self.partition_rows

    @property
    def shards(self) -> int:
        return -(-self.total_rows // self.shard_rows)

    @property
    def partitions(self) -> int:
        return -(-self.total_rows // self.partition_rows)

    def span(self, shard: int) -> Range:
        """The rows of a shard."""
        begin = shard * self.shard_rows
        return Range(begin, min(begin + self.shard_rows, self.total_rows))

    def shard_of(self, rows: Range) -> int:
        """The shard that holds a partition. Raises `UsageError` where none can."""
        if rows.end > self.total_rows:
            raise UsageError(f"rows {rows} are outside of the input, which has {self.total_rows} rows")
        shard_rows = self.shard_rows
        shard = rows.begin // shard_rows
        end = (shard + 1) * shard_rows
        if rows.end > end:
            raise UsageError(
                f"rows {rows} cross row {end}, a multiple of {shard_rows}, which no partition may",
                hint=f"ask for {rows.begin}-{end} and {end}-{rows.end} instead",
            )
        return shard

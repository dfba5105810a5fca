"""How rows are cut into partitions, and partitions into shards; and the document that says so for a run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.config import shown_url
from penstock.core.codec import SPACED, DocumentFormat, whole
from penstock.core.ranges import Range
from penstock.errors import CorruptFile, RunError, RunMismatch, UsageError
from penstock.store.base import Store

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


@dataclass(frozen=True, slots=True)
class BoardDocument:
    """What is fixed for the partitions of a run."""

    total_rows: int
    partition_rows: int
    max_failures: int

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.total_rows, self.partition_rows)


BOARD = DocumentFormat(
    BoardDocument,
    "the board of a run",
    text=SPACED,
    ignores_unknown=True,
    unpack=whole("partition_rows", "max_failures"),
    hint="restore the store",
    refusal=CorruptFile,
)


def create_board(store: Store, run: str, geometry: Geometry, max_failures: int) -> None:
    """Write the document unless it is there; `RunMismatch` if it is there with another geometry."""
    if max_failures < 1:
        raise UsageError(f"{max_failures} is no number of failures to allow", hint="allow at least 1")
    document = BoardDocument(geometry.total_rows, geometry.partition_rows, max_failures)
    if store.cas(_board_key(run), 0, BOARD.encode(document)) is not None:
        return
    existing, _ = read_board(store, run)
    if existing != geometry:
        raise RunMismatch(
            f"run {run!r} exists with {existing.total_rows} rows in partitions of {existing.partition_rows}, "
            f"not {geometry.total_rows} in partitions of {geometry.partition_rows}",
            left="the existing run was not changed",
            hint="resume it as it is, or start under another run name",
        )


def find_board(store: Store, run: str) -> tuple[Geometry, int] | None:
    """Geometry and allowed failures of a run; None if there is no such run."""
    document = store.get(_board_key(run))
    if document is None:
        return None
    return BOARD.read(document.key, document.value, lambda found: (found.geometry, found.max_failures))


def read_board(store: Store, run: str) -> tuple[Geometry, int]:
    """As `find_board`. Raises `RunError` when there is no such run."""
    found = find_board(store, run)
    if found is None:
        raise RunError(f"there is no run {run!r} in {shown_url(store.url)}", hint="see `penstock runs ls`")
    return found


def _board_key(run: str) -> str:
    """A run's board; that of a later phase is named ``RUN/phase-N``."""
    name, slash, phase = run.partition("/")
    if not name or not name.isprintable() or (slash and not re.fullmatch(r"phase-\d+", phase)):
        raise UsageError(f"{run!r} cannot name a run", hint="use letters, digits, dots and dashes")
    return f"runs/{run}/board"

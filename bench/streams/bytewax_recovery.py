"""How far bytewax has committed, as its recovery partitions tell."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass

from bench.streams.load import Load


@dataclass(frozen=True, slots=True)
class Execution:
    """One start of a dataflow."""

    workers: int
    resumed: int
    """The epoch at which it began: what earlier executions did from there on counts for nothing."""
    frontiers: list[int]

    @property
    def committed(self) -> int:
        """Epochs below this one are: the next execution would begin with it."""
        return min(self.frontiers) if len(self.frontiers) == self.workers else self.resumed


class Recovery:
    """What bytewax has written into its recovery partitions."""

    def __init__(self, load: Load) -> None:
        self._paths = sorted(load.folder("recovery").glob("*.sqlite3"))

    def executions(self) -> list[Execution]:
        begun: dict[int, tuple[int, int]] = {}
        frontiers: dict[int, list[int]] = defaultdict(list)
        for path in self._paths:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as connection:
                for number, *each in connection.execute("SELECT ex_num, worker_count, resume_epoch FROM exs"):
                    begun[number] = (each[0], each[1])
                for number, frontier in connection.execute("SELECT ex_num, worker_frontier FROM fronts"):
                    frontiers[number].append(frontier)
        return [Execution(*begun[number], frontiers[number]) for number in sorted(begun)]

    def committed(self) -> int:
        executions = self.executions()
        return executions[-1].committed if executions else 0

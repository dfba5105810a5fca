"""What came out of a run: which polls were made when, and in which commit each of them is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.streams import generator
from bench.streams.generator import KEYS, PARTS
from bench.streams.load import Load


class WrongResult(RuntimeError):
    """A side did not count what the generator gave: nothing that it measured is worth anything."""


@dataclass(frozen=True, slots=True)
class Poll:
    mark: int
    at: float
    process: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Counts by key that could be seen from a moment on."""

    at: float
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Trace:
    polls: Sequence[Poll]
    commits: Sequence[Commit]

    def latencies(self) -> list[float]:
        """Seconds from each poll to the commit that has it, for those that have one.

        Polls before the first commit are left out: they waited for everything to be started.
        """
        first = min(commit.at for commit in self.commits)
        polled = {poll.mark: poll.at for poll in self.polls if poll.at > first}
        return [at - polled[mark] for mark, at in self._committed().items() if mark in polled]

    def resumed(self, after: float) -> float:
        """When the first poll was committed that a process made which had not polled before ``after``."""
        known = {poll.process for poll in self.polls if poll.at <= after}
        marks = {poll.mark for poll in self.polls if poll.process not in known}
        # A poll that is made again after a restart has the mark of the one that was not committed.
        times = [at for mark, at in self._committed().items() if mark in marks and at > after]
        if not times:
            raise WrongResult("nothing that was polled after the request was committed")
        return min(times)

    def check(self, load: Load) -> None:
        """See that each committed poll was counted once, with exactly its rows."""
        last = newest(commit.counts for commit in self.commits)
        marks = [key for key in last if key >= KEYS]
        if not marks:
            raise WrongResult("nothing was committed")
        if twice := [key for key in marks if last[key] != 1]:
            raise WrongResult(f"{len(twice)} of {len(marks)} polls were counted more than once")
        places = [generator.marked(key) for key in marks]
        expect(last, sum(generator.counts(part, start, load.count(start)) for part, start in places))

    def _committed(self) -> dict[int, float]:
        times: dict[int, float] = {}
        for commit in sorted(self.commits, key=lambda c: c.at):
            for key in commit.counts:
                if key >= KEYS:
                    times.setdefault(key, commit.at)
        return times


def polls(folder: Path) -> list[Poll]:
    """What `PollLog` wrote."""
    found = []
    for path in folder.iterdir():
        for line in path.read_text(encoding="ascii").splitlines():
            mark, at = line.split()
            found.append(Poll(int(mark), int(at) / 1e9, int(path.name)))
    return found


def newest(results: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """The last count of each key: counts only grow."""
    last: dict[int, int] = {}
    for counts in results:
        for key, count in counts.items():
            last[key] = max(count, last.get(key, 0))
    return last


def expect_all(counts: Mapping[int, int], load: Load) -> None:
    """See that these are the counts of all rows of all parts."""
    expect(counts, sum(generator.counts(part, 0, load.rows) for part in range(PARTS)))


def expect(counts: Mapping[int, int], truth: object) -> None:
    found = np.array([counts.get(key, 0) for key in range(KEYS)])
    if wrong := int(np.count_nonzero(found != truth)):
        raise WrongResult(f"{wrong:,} of {KEYS:,} counts are wrong; {int(found.sum()):,} rows were counted")

"""What a side is asked to do, and the log of polls that it keeps meanwhile.

Peers' programs import this in their own environments: it needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from bench.streams import generator

# Polls of a part. Flink keeps the numbers of all that are to come in its snapshots: more would slow it down.
_ENDLESS = 1_000


@dataclass(frozen=True, slots=True)
class Load:
    """A keyed count over all parts of the generator, in the folder ``place``.

    ``rows`` is what each part has, ``poll`` how many of them come at once, ``interval`` the seconds between
    commits. With a ``pace``, each part is polled so often a second, and with every poll comes one more row:
    its mark, by which the poll can be found in the results.
    """

    place: str
    rows: int
    poll: int
    interval: float
    workers: int
    pace: float = 0.0

    @classmethod
    def endless(cls, place: Path, *, poll: int, interval: float, workers: int, pace: float) -> Self:
        """One that lasts longer than a measurement."""
        return cls(str(place), _ENDLESS * poll, poll, interval, workers, pace)

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def folder(self, name: str) -> Path:
        """A folder of the run, made when it is not there."""
        path = Path(self.place, name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def keys(self, part: int, start: int) -> list[int]:
        """The keys of one poll, as Python numbers."""
        found: list[int] = generator.keys(part, start, self.count(start)).tolist()
        return [generator.mark(part, start), *found] if self.pace else found

    def count(self, start: int) -> int:
        return min(self.poll, self.rows - start)


class PollLog:
    """A file for each process, with a line for each poll: its mark and when it was made.

    Times are of the system's monotonic clock, which all processes of a machine share.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / str(os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, part: int, start: int) -> None:
        os.write(self._file, b"%d %d\n" % (generator.mark(part, start), time.monotonic_ns()))

"""What the tasks of an epoch's job hand back, and what the driver makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from penstock.core.codec import plain, typed
from penstock.journals.shuffle.queues.run_files import RunFile
from penstock.journals.shuffle.visibility.frontier import Frontier, reduce
from penstock.sources.base import PartName
from penstock.streams.model import PartState, RowFile

SCHEMA = pa.schema([("result", pa.string())])
"""A task hands back one row."""


@dataclass(frozen=True, slots=True)
class Polled:
    """What a job brought back."""

    states: Mapping[PartName, PartState]
    files: tuple[RowFile, ...] = ()
    newest: Mapping[PartName, int] = field(default_factory=dict)
    """The greatest event time that each part brought; of journals, each queue."""
    sizes: Mapping[str, float] = field(default_factory=dict)
    """How many bytes a row took in memory, by source."""
    runs: tuple[RunFile, ...] = ()
    """What slices wrote for the queues of journals."""
    progress: Frontier = field(default_factory=Frontier)
    """How far they have come."""
    read: int = 0
    """How many bytes of journals were read."""
    unasked: frozenset[PartName] = frozenset()
    """Those that had not their turn, or could not be read to their end."""
    unfinished: Mapping[PartName, int] = field(default_factory=dict)
    """Where lines begin at the end of journals whose ends are not there yet."""
    behind: frozenset[PartName] = frozenset()
    """The journals of which there is more to read now."""
    took: Mapping[PartName, float] = field(default_factory=dict)
    """How many seconds the longest call of a part took, if that was long."""

    def joined(self, other: Polled) -> Polled:
        """With what another job brought, of other parts."""
        return Polled(
            {**self.states, **other.states},
            (*self.files, *other.files),
            {**self.newest, **other.newest},
            {**self.sizes, **other.sizes},
            (*self.runs, *other.runs),
            reduce(self.progress, other.progress),
            self.read + other.read,
            self.unasked | other.unasked,
            {**self.unfinished, **other.unfinished},
            self.behind | other.behind,
            {**self.took, **other.took},
        )


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task brought. It travels to the driver as one JSON text.

    The fields are those of `Polled`. ``taken`` are by source the rows that were taken in and their bytes in
    memory.
    """

    states: Mapping[PartName, PartState]
    files: tuple[RowFile, ...] = ()
    newest: Mapping[PartName, int] = field(default_factory=dict)
    taken: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    runs: tuple[RunFile, ...] = ()
    progress: Frontier = field(default_factory=Frontier)
    read: int = 0
    unasked: frozenset[PartName] = frozenset()
    unfinished: Mapping[PartName, int] = field(default_factory=dict)
    behind: frozenset[PartName] = frozenset()
    took: Mapping[PartName, float] = field(default_factory=dict)

    def batch(self) -> pa.RecordBatch:
        """As a task yields it."""
        return pa.RecordBatch.from_pylist([{"result": self.encode()}], schema=SCHEMA)

    def encode(self) -> str:
        body = {
            "states": [[n.source, n.part, each.state, each.finished] for n, each in self.states.items()],
            "files": plain(self.files),
            "newest": _by_part(self.newest),
            "taken": self.taken,
            "runs": [file.to_json() for file in self.runs],
            "progress": self.progress.to_json(),
            "read": self.read,
            "unasked": [[name.source, name.part] for name in self.unasked],
            "unfinished": _by_part(self.unfinished),
            "behind": [[name.source, name.part] for name in self.behind],
            "took": _by_part(self.took),
        }
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Self:
        found = json.loads(text)
        return cls(
            {PartName(source, part): PartState(state, done) for source, part, state, done in found["states"]},
            typed(tuple[RowFile, ...], found["files"]),
            _parts_in(found["newest"]),
            {source: (rows, size) for source, (rows, size) in found["taken"].items()},
            tuple(RunFile.from_json(each) for each in found["runs"]),
            Frontier.from_json(found["progress"]),
            found["read"],
            frozenset(PartName(*name) for name in found["unasked"]),
            _parts_in(found["unfinished"]),
            frozenset(PartName(*name) for name in found["behind"]),
            _parts_in(found["took"]),
        )


def polled(results: Iterable[TaskResult]) -> Polled:
    """What all tasks of a job brought."""
    found = Polled({})
    taken: dict[str, tuple[int, int]] = {}
    for each in results:
        found = found.joined(
            Polled(
                each.states,
                each.files,
                each.newest,
                {},
                each.runs,
                each.progress,
                each.read,
                each.unasked,
                each.unfinished,
                each.behind,
                each.took,
            )
        )
        for source, (rows, size) in each.taken.items():
            before = taken.get(source, (0, 0))
            taken[source] = before[0] + rows, before[1] + size
    return replace(found, sizes={source: size / rows for source, (rows, size) in taken.items()})


def _by_part(values: Mapping[PartName, Any]) -> list[list[Any]]:
    return [[name.source, name.part, value] for name, value in values.items()]


def _parts_in(found: Iterable[Any]) -> dict[PartName, Any]:
    return {PartName(source, part): value for source, part, value in found}

"""One slice after the other over the journals of a log, and what they handed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.journals.format.documents import encode_ack, encode_document
from penstock.journals.format.hints import Hint
from penstock.journals.format.uuids import Flag, Stamp
from penstock.journals.shuffle.queues.queues import Show, documents
from penstock.journals.shuffle.queues.run_files import Commits, RunFile, RunWriter
from penstock.journals.shuffle.slices.positions import JournalPosition
from penstock.journals.shuffle.slices.slices import Slice, SliceLimits
from penstock.sources.base import PartName
from penstock.sources.journals import JournalSource
from penstock.storage import Storage
from penstock.types.tables import Table
from tests.journals.shuffle.logs import Log

TODAY = 0x1EF0 << 48
"""A clock, with others before and after it."""


class Items(Table):
    """What the documents hold."""

    id: int
    name: str | None


def producer(number: int) -> int:
    return 1 << 40 | number


def line(id_: Any, clock: int, flag: Flag = Flag.OUTSIDE, who: int = 1, **members: Any) -> bytes:
    """A document; None leaves the id out."""
    body = members if id_ is None else {"id": id_, **members}
    return encode_document(Stamp(producer(who), TODAY + clock, flag), body)


def ack(clock: int, who: int = 1, hints: Mapping[str, int] | None = None) -> bytes:
    """An acknowledgement, with hints at the clocks of the same producer in other journals."""
    found = [Hint(journal, producer(who), TODAY + other) for journal, other in (hints or {}).items()]
    return encode_ack(Stamp(producer(who), TODAY + clock, Flag.ACK), found)


class Desk:
    """Reads on from where it stands, call by call."""

    def __init__(self, folder: Path) -> None:
        self.log = Log(folder / "journals")
        self.storage = Storage(folder / "work")
        self.sources: dict[str, JournalSource] = {}
        self.positions: dict[PartName, JournalPosition] = {}
        self.calls = 0

    def source(self, name: str = "items", table: type[Table] = Items, **options: Any) -> JournalSource:
        self.sources[name] = JournalSource(self.log.root, table, **options)
        return self.sources[name]

    def write(self, journal: str, *lines: bytes) -> None:
        self.log.fragment(journal, b"".join(lines))

    def slice(
        self, *, most: int = 1 << 30, rows: int = 1 << 30, seconds: float = 60.0, now: int = 1 << 40
    ) -> tuple[Slice, list[dict[str, Any]]]:
        """One call, and the rows that it handed on; after an error nothing has moved."""
        self.calls += 1
        reads = {
            PartName(name, journal): self.positions.get(PartName(name, journal), JournalPosition())
            for name, source in self.sources.items()
            for journal in source.list_parts()
        }
        with RunWriter(self.storage, f"runs/{self.calls}", self.calls, None) as writer:
            slice_ = Slice(self.sources, writer, SliceLimits(most, rows, seconds), TODAY + now)
            slice_.read(reads)
        self.positions |= slice_.positions
        return slice_, [row for file in slice_.files for row in self._rows(file)]

    def ids(self, **limits: Any) -> list[int]:
        """The ids of what one call handed on, sorted."""
        return sorted(row["id"] for row in self.slice(**limits)[1])

    def at(self, journal: str, source: str = "items") -> JournalPosition:
        return self.positions[PartName(source, journal)]

    def _rows(self, file: RunFile) -> Iterator[dict[str, Any]]:
        shows = [Show(file, Commits.of(()), None)]
        for queue in range(self.sources[file.source].queues):
            for batch in documents(self.storage, shows, queue):
                yield from batch.to_pylist()

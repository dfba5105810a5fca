"""What a stream's epochs consist of, as values.

An instance answers a barrier with two short texts (see `penstock.control.cluster.rules.model.Ack`): where it
*stands* (its frontier), and what it *brought* (its files). Both point to files in storage, so that the
store's documents stay small whatever the number of parts and rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self, TypeVar

from penstock.core.codec import DocumentFormat
from penstock.errors import CorruptFile
from penstock.storage import FileRecord, Storage

SCOPE = "rows"
"""The scope of a stream's epochs in its cluster."""

OPEN = -(2**63)
"""The watermark of an instance that has not finished."""
END = 2**63 - 1
"""The watermark of a stream whose parts have all finished."""

T = TypeVar("T")
_WHERE = "a record of an epoch"


@dataclass(frozen=True, slots=True)
class Pointer:
    """A small file in storage, and what its bytes were."""

    path: str
    sha256: str

    @classmethod
    def write(cls, storage: Storage, path: str, kind: DocumentFormat[T], value: T) -> Self:
        data = kind.encode(value)
        storage.write(path, data)
        return cls(path, hashlib.sha256(data).hexdigest())

    def read(self, storage: Storage, kind: DocumentFormat[T]) -> T:
        where = storage.location(self.path)
        try:
            data = storage.read(self.path)
        except FileNotFoundError:
            raise CorruptFile(f"{where} is missing", hint="restore it from a backup of the storage") from None
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise CorruptFile(f"{where} does not match its checksum", hint="restore it from a backup")
        return kind.decode(where, data)


@dataclass(frozen=True, slots=True)
class RowFile:
    """Rows of one source that one task polled, as an Arrow IPC file.

    ``late`` rows stand in files of their own. ``newest`` is the greatest event time among the rows that are
    not late, in microseconds; None without event time.
    """

    source: str
    record: FileRecord
    late: bool = False
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class Portion:
    """The row files that one instance added in an epoch."""

    files: tuple[RowFile, ...]


PORTION = DocumentFormat(Portion, "a list of row files")


@dataclass(frozen=True, slots=True)
class Brought:
    """What one instance added in an epoch: its row files, listed in the file ``portion``, and their sums."""

    member: str
    portion: Pointer
    rows: int
    bytes: int
    late: int = 0
    watermarks: Mapping[str, int] = field(default_factory=dict)
    """By source, the event time below which rows of this epoch are late (see `streams.ingest.watermarks`)."""

    def files(self, storage: Storage) -> tuple[RowFile, ...]:
        """The row files."""
        return self.portion.read(storage, PORTION).files

    def encode(self) -> str:
        return _BROUGHT.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Brought:
        return _BROUGHT.decode(_WHERE, text)


# Watermarks came later.
_BROUGHT = DocumentFormat(Brought, "what an instance brought", later={"watermarks": {}})


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one instance stands after an epoch.

    ``states`` points to the states of its parts that go on, ``finished`` to those that do not (see
    `streams.ingest.finished_parts`), and ``listing`` to the parts that it has just found: their owners have
    them among their states one epoch later. ``newest`` is by source the greatest event time of the whole
    stream, as far as this instance knows. ``report`` says what it read of journals, and ``session`` where
    their shuffle stands if it is the one who writes that down.

    ``low`` is by source the time before which no row of this instance's parts is expected any more, and
    ``watermark`` the one below which rows of this epoch are late (see `streams.ingest.watermarks`). ``open``
    is the number of its parts that go on; None in what was written before it was counted. ``problems`` says
    by source why it cannot be listed.

    ``absent`` points to how long journals of the sources that it lists were missing, and ``floors`` has by
    source the greatest clock of the journals that were forgotten, as far as this instance knows (see
    `streams.ingest.absent_journals`); in ``listing`` stand also those that it has just forgotten. ``looked``
    is by source what it had brought when each of this instance's journals was last read to its end (see
    `streams.ingest.watermarks`). ``beside`` is the epoch in which a job was begun that is still under way
    (see `streams.ingest.slow_polls`).
    """

    states: Pointer | None = None
    listing: Pointer | None = None
    newest: Mapping[str, int] = field(default_factory=dict)
    finished: Pointer | None = None
    report: Pointer | None = None
    session: Pointer | None = None
    low: Mapping[str, int] = field(default_factory=dict)
    watermark: Mapping[str, int] = field(default_factory=dict)
    open: int | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
    absent: Pointer | None = None
    floors: Mapping[str, int] = field(default_factory=dict)
    looked: Mapping[str, int] = field(default_factory=dict)
    beside: int | None = None

    @property
    def pointers(self) -> tuple[Pointer, ...]:
        """All files that it needs."""
        each = (self.states, self.finished, self.listing, self.report, self.session, self.absent)
        return tuple(pointer for pointer in each if pointer is not None)

    def encode(self) -> str:
        return _STANDING.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Standing:
        return _STANDING.decode(_WHERE, text)


_STANDING = DocumentFormat(Standing, "where an instance stands", omits=Standing.__slots__)


@dataclass(frozen=True, slots=True)
class PartState:
    """The committed state of a part: ``state`` is encoded, None before the first snapshot.

    ``newest`` is its greatest event time, in microseconds, and ``idle`` says that it has brought nothing for
    so long that nobody waits for it (see `streams.ingest.watermarks`).
    """

    state: str | None = None
    finished: bool = False
    newest: int | None = None
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Epoch:
    """A committed epoch as readers see it. ``ended``: it is the last one, all parts have finished."""

    number: int
    brought: tuple[Brought, ...] = ()
    ended: bool = False
    at: str = ""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.brought)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.brought)

    @property
    def late(self) -> int:
        return sum(each.late for each in self.brought)

    def watermark(self, source: str) -> int | None:
        """The event time below which its rows of a source are late, if it tells."""
        return max((b.watermarks[source] for b in self.brought if source in b.watermarks), default=None)

    @property
    def tells(self) -> bool:
        """Whether readers need to know of it: it has rows, moves a watermark, or is the end."""
        return bool(self.rows or self.late or self.ended or any(each.watermarks for each in self.brought))

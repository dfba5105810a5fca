"""The document of a table in the store: the one place that says which batches it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from penstock.config import shown_url
from penstock.core.codec import DocumentFormat, schema_from_text
from penstock.errors import CorruptFile
from penstock.sinks.base import Mode
from penstock.sinks.parquet.manifests import Levels, ManifestNode, Manifests
from penstock.storage import Storage
from penstock.store import Store
from penstock.streams.layout import Layout, group_of, grouped

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableShape:
    """What may not change while the table exists. ``schema`` is an Arrow schema, encoded."""

    schema: str
    mode: Mode
    keys: tuple[str, ...] = ()
    location: str | None = None
    """Where the files are, if not in the storage of the stream."""

    @property
    def arrow(self) -> pa.Schema:
        return schema_from_text(self.schema)

    def differences(self, now: TableShape) -> list[str]:
        """Why rows of the shape ``now`` do not belong into the same table, in words; empty if they do."""
        facts = (
            ("the mode", self.mode, now.mode),
            ("the key", ", ".join(self.keys) or "none", ", ".join(now.keys) or "none"),
            ("the place", _shown(self.location), _shown(now.location)),
        )
        reasons = [f"{what} was {old}, is {new}" for what, old, new in facts if old != new]
        return reasons + _changed_fields(self.arrow, now.arrow)


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as of its newest batch."""

    shape: TableShape
    token: int
    """Of the newest owner that opened it; writes with a lower one are refused."""
    batch: int | None = None
    epoch: int = 0
    first: int = 0
    """The oldest epoch that it can still be read at."""
    ended: bool = False
    levels: Levels = ()

    def replaced(self, node: ManifestNode, keep: int) -> tuple[TableState, tuple[ManifestNode, ...]]:
        """The table with a batch that holds all of it: the newest ``keep`` stay, the others are let go."""
        nodes = (*(self.levels[0] if self.levels else ()), node)
        kept = nodes[-keep:]
        first = self.first if len(nodes) <= keep else kept[0].since
        return replace(self, levels=(kept,), first=first), nodes[:-keep]


TABLE = DocumentFormat(TableState, "the document of a table")


class TableVersion(NamedTuple):
    """A table's state, and the version of the document that it was read from."""

    state: TableState
    version: int


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where the document and the files of one table stand."""

    store: Store
    storage: Storage
    key: str
    folder: str

    @classmethod
    def of(cls, store: Store, storage: Storage, layout: Layout, output: str, location: str | None) -> Self:
        """``location``: the files stand there, apart from those of other streams that it may be given to."""
        key = document_key(layout, output)
        if location is None:
            return cls(store, storage, key, layout.output(output))
        return cls(store, Storage(location), key, f"{layout.stream}-{layout.id}/{output}")

    @property
    def rows(self) -> str:
        return f"{self.folder}/rows"

    @property
    def logs(self) -> str:
        return f"{self.folder}/manifests"

    @property
    def manifests(self) -> Manifests:
        return Manifests(self.storage, self.logs)

    def attempt(self, batch: int, token: int, unique: str) -> str:
        """The folder for the rows of one attempt at a batch."""
        return f"{grouped(self.rows, group_of(batch))}/{batch:016}-{token:016}-{unique}"

    def read(self) -> TableVersion | None:
        found = self.store.get(self.key)
        return TableVersion(TABLE.decode(self.key, found.value), found.version) if found else None

    def steadily(self, found: TableVersion, read: Callable[[TableState], T]) -> T:
        """Read the files of a table while it may change: a manifest that is gone may have been folded."""
        while True:
            try:
                return read(found.state)
            except CorruptFile:
                newest = self.read()
                if newest is None or newest.version == found.version:
                    raise
                found = newest


def document_key(layout: Layout, output: str) -> str:
    return f"{layout.output_key(output)}/table"


def _shown(location: str | None) -> str:
    return "that of the stream" if location is None else shown_url(location)


def _changed_fields(before: pa.Schema, now: pa.Schema) -> list[str]:
    old, new = ({field.name: _described(field) for field in schema} for schema in (before, now))
    reasons = [f"field {name} is gone" for name in old if name not in new]
    reasons += [f"field {name} is new" for name in new if name not in old]
    common = [name for name in old if name in new]
    reasons += [f"{name} was {old[name]}, is {new[name]}" for name in common if old[name] != new[name]]
    if not reasons and list(old) != list(new):
        reasons.append(f"the order of its fields was {', '.join(old)}")
    return reasons


def _described(field: pa.Field) -> str:
    return f"{field.type}{' or null' if field.nullable else ''}"

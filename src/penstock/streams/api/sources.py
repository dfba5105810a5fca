"""The sources of a stream as its definition knows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.batch.pipeline.fingerprint.digests import code_digest
from penstock.core.moved import first_home
from penstock.sources.base import Source
from penstock.types.tables import Table, schema_id

if TYPE_CHECKING:
    import pyarrow as pa

Late = Literal["drop", "keep"]
"""What windows make of a row that comes too late: counted and left out, or had by `Rows.late` as well."""
IDLE_AFTER = 60.0
"""After how many seconds nobody waits for a part that has nothing, unless something else is said."""


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The event time of a source's rows.

    A row is late if its time is more than ``lateness`` seconds before what every part of the source has come
    to; a part that has had nothing for ``idle_after`` seconds (None: whatever it takes) is not waited for.
    ``extract`` computes the field from a batch; without it, the source brings the field.
    """

    field: str
    lateness: float
    late: Late = "drop"
    extract: Callable[[pa.RecordBatch], pa.Array] | None = None
    idle_after: float | None = IDLE_AFTER

    def describe(self) -> dict[str, Any]:
        # How long to wait for a part may change from one start to the next.
        found = {"field": self.field, "lateness": self.lateness, "late": self.late}
        return found if self.extract is None else {**found, "extract": code_digest(self.extract)}


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source under its name in a stream."""

    name: str
    source: Source
    timestamps: Timestamps | None = None
    location: str = ""

    @property
    def table(self) -> type[Table]:
        return self.source.table

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that its rows have: what it brings, and the event time if that is computed."""
        computed = self.timestamps.field if self.timestamps and self.timestamps.extract else None
        return tuple(f.name for f in self.table.__fields__.values() if not f.derived or f.name == computed)

    def describe(self) -> dict[str, Any]:
        kind = type(self.source)
        name = self.table.__table_name__
        return {
            # Of the rows as they are kept: no stream can go on with others.
            "table": {"name": name, "schema": schema_id(name, self.table.arrow_schema(self.fields))},
            "kind": f"{first_home(kind.__module__, kind.__qualname__)}.{kind.__qualname__}",
            "place": dict(self.source.describe()),
            "timestamps": self.timestamps.describe() if self.timestamps else None,
        }

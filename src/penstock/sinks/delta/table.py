"""A Delta table as a sink finds it: does it take files that others than Delta's own writers made?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.config import shown_url
from penstock.core.packages import need
from penstock.errors import StorageFull, StreamMismatch, TransientError, UsageError
from penstock.types.lattice import loosens

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FULL = "No space left on device"
# What a table may ask of its writers beyond putting rows into files.
_DEMANDS = ("delta.constraints.", "delta.columnMapping.mode")
_FIELD_DEMANDS = ("delta.invariants", "delta.generationExpression", "delta.identity.")
_UNTOLD = re.compile(r'(^|[tT]ype": )"(variant|interval)')
"""Types of which Arrow does not tell what they are: a struct of bytes to it, or a number."""


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raise what Delta raises as errors of ours."""
    need("delta", "a Delta table")
    from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

    where = f"the Delta table at {shown_url(place)}"
    try:
        yield
    except TableNotFoundError as error:
        raise UsageError(
            f"{where} cannot be reached or made: {_words(error)}",
            left="nothing was written",
            hint="give the sink another location, or give this process the right to write there",
        ) from error
    except DeltaProtocolError as error:
        raise StreamMismatch(
            f"{where} needs a newer writer: {_words(error)}", hint="pip install --upgrade deltalake"
        ) from error
    except (DeltaError, OSError) as error:
        what = f"{where}: {_words(error)}"
        if _FULL in what:
            raise StorageFull(what, left="nothing of the batch", hint="free some space") from error
        raise TransientError(what, left="the whole batch or nothing of it; it comes again") from error


def check_table(table: DeltaTable, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Raise `StreamMismatch` unless rows of ``schema`` may be added to the table as they are."""
    reasons = [*_fields(table, schema), *_partitions(table, partition_by), *_demands(table)]
    if reasons:
        raise StreamMismatch(
            f"the Delta table at {shown_url(table.table_uri)} does not take the rows: {'; '.join(reasons)}",
            left="nothing was written",
            hint="change the table, or what the output declares, or write to a new location",
        )


def _fields(table: DeltaTable, schema: pa.Schema) -> Iterator[str]:
    from deltalake import Schema

    there, ours = _columns(table.schema()), _columns(Schema.from_arrow(schema))
    for name, column in ours.items():
        if name not in there:
            yield f"it has no column {name}"
        elif not there[name].takes(column):
            yield f"{name} is {there[name]} there and {column} here"
        elif column.arrow.nullable and not there[name].arrow.nullable:
            yield f"{name} may not be null there"
    yield from (f"it needs a column {n}" for n, c in there.items() if n not in ours and not c.arrow.nullable)


def _partitions(table: DeltaTable, partition_by: Sequence[str]) -> Iterator[str]:
    there = table.metadata().partition_columns
    if list(there) != list(partition_by):
        yield f"it is partitioned by ({', '.join(there)}), not by ({', '.join(partition_by)})"


def _demands(table: DeltaTable) -> Iterator[str]:
    settings = table.metadata().configuration
    for name, value in settings.items():
        if name.startswith(_DEMANDS) and value != "none":
            yield f"it has {name}, which is not kept by files of ours"
    for field in json.loads(table.schema().to_json())["fields"]:
        for name in field["metadata"]:
            if name.startswith(_FIELD_DEMANDS):
                yield f"column {field['name']} has {name}, which is not kept by files of ours"


@dataclass(frozen=True, slots=True)
class _Column:
    arrow: pa.Field
    delta: Any
    """The type as Delta's log has it."""

    def takes(self, other: _Column) -> bool:
        """Whether values of ``other`` may stand here: the types are the same, but for looser nulls."""
        return loosens(other.arrow.type, self.arrow.type) and not _UNTOLD.search(json.dumps(self.delta))

    def __str__(self) -> str:
        return self.delta if isinstance(self.delta, str) else json.dumps(self.delta)


def _columns(schema: Schema) -> dict[str, _Column]:
    described = json.loads(schema.to_json())["fields"]
    return {
        field.name: _Column(field, described[number]["type"])
        for number, field in enumerate(pa.schema(schema.to_arrow()))
    }


def _words(error: BaseException) -> str:
    return " ".join(_COLOURS.sub("", str(error)).replace("↳", "").split())

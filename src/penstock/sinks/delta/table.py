"""A Delta table as a sink finds it: does it take files that others than Delta's own writers made?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.config import shown_url
from penstock.core.packages import need
from penstock.errors import StorageFull, StreamMismatch, TransientError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FULL = "No space left on device"
# What a table may ask of its writers beyond putting rows into files.
_DEMANDS = ("delta.constraints.", "delta.columnMapping.mode")
_FIELD_DEMANDS = ("delta.invariants", "delta.generationExpression", "delta.identity.")


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

    there = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    ours = {field["name"]: field for field in json.loads(Schema.from_arrow(schema).to_json())["fields"]}
    for name, field in ours.items():
        if name not in there:
            yield f"it has no column {name}"
        elif not _fits(field["type"], there[name]["type"]):
            yield f"{name} is {_shown(there[name]['type'])} there and {_shown(field['type'])} here"
        elif field["nullable"] and not there[name]["nullable"]:
            yield f"{name} may not be null there"
    yield from (f"it needs a column {n}" for n, f in there.items() if n not in ours and not f["nullable"])


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


def _fits(have: Any, want: Any) -> bool:
    """Whether values of a Delta type may stand in a column of another: the same, but for looser nulls."""
    if not isinstance(have, dict) or not isinstance(want, dict):
        return bool(have == want)
    if have["type"] != want["type"]:
        return False
    if have["type"] == "array":
        inner = have["containsNull"] <= want["containsNull"]
        return bool(inner and _fits(have["elementType"], want["elementType"]))
    ours, theirs = have["fields"], want["fields"]
    return [f["name"] for f in ours] == [f["name"] for f in theirs] and all(
        _fits(a["type"], b["type"]) and a["nullable"] <= b["nullable"]
        for a, b in zip(ours, theirs, strict=True)
    )


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)


def _words(error: BaseException) -> str:
    return " ".join(_COLOURS.sub("", str(error)).replace("↳", "").split())

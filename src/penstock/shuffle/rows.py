"""From documents that are committed to rows of their table, each with the queue that it goes to."""

from __future__ import annotations

import json
import logging
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.errors import BadInput, PenstockError
from penstock.inputs.conform import conform
from penstock.shuffle.columns import Lines, Parser
from penstock.shuffle.keys import clock_queues, key_queues
from penstock.shuffle.validation import validator
from penstock.sources.journals import JournalSource

Array: TypeAlias = "np.ndarray[Any, Any]"

_log = logging.getLogger(__name__)

_UNIX = 0x01B21DD213814000
_SHOWN = 200


class RowMaker:
    """Makes rows of the documents of one source."""

    def __init__(self, name: str, source: JournalSource) -> None:
        self._name = name
        self._source = source
        self._schema = source.table.input_schema()
        read = [field for field in self._schema if field.name not in source.meta]
        self.parser = Parser(pa.schema(read))
        self._validator = None if source.schema is None else validator(source.schema)

    def valid(self, lines: Lines, chosen: Array) -> Array:
        """Those of the chosen documents that fulfil the JSON schema and have the fields that they must have.

        The others fail with `BadInput`, or are left out if the source says so.
        """
        why: dict[int, str] = self._nulls(lines, chosen)
        if self._validator is not None:
            for number in chosen.tolist():
                problem = self._validator(json.loads(lines.line(number)))
                if problem is not None:
                    why.setdefault(number, problem)
        if not why:
            return chosen
        first = min(why)
        what = f"source {self._name}, {lines.where(first)}: {why[first][:_SHOWN]}"
        if self._source.on_invalid == "fail":
            raise BadInput(
                what,
                left="the epoch was not committed, and is tried again",
                hint='let such documents be left out with on_invalid="skip", or change table and schema',
            )
        _log.warning("%s; left out, with %d others", what, len(why) - 1)
        return chosen[~np.isin(chosen, list(why))]

    def rows(self, lines: Lines, chosen: Array) -> pa.RecordBatch:
        """The chosen documents as rows."""
        read = lines.fields.take(pa.array(chosen))
        columns = {name: read.column(name) for name in read.schema.names}
        for field, what in self._source.meta.items():
            columns[field] = _meta(lines, chosen, what)
        batch = pa.RecordBatch.from_pydict({name: columns[name] for name in self._schema.names})
        try:
            return conform(batch, self._schema, file=f"source {self._name}")
        except PenstockError as error:
            journals = sorted({lines.journals[number] for number in np.unique(lines.journal[chosen])})
            raise type(error)(
                f"{error.what} (journals {', '.join(journals)[:_SHOWN]})", hint=error.hint
            ) from error

    def queues(self, rows: pa.RecordBatch, clock: Array) -> Array:
        source = self._source
        return (
            key_queues(rows, source.key, source.queues) if source.key else clock_queues(clock, source.queues)
        )

    def _nulls(self, lines: Lines, chosen: Array) -> dict[int, str]:
        """Of the chosen documents, those without a field that every row must have."""
        found: dict[int, str] = {}
        for field in self._schema:
            if field.nullable or field.name in self._source.meta:
                continue
            column = lines.fields.column(field.name)
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                for number in chosen[nulls[chosen]].tolist():
                    found.setdefault(number, f"the document has no {field.name}, which may not be null")
        return found


def _meta(lines: Lines, chosen: Array, what: str) -> pa.Array:
    stamps = lines.stamps
    if what == "uuid":
        return lines.uuids.take(pa.array(chosen))
    if what == "journal":
        return pa.array(lines.journals).take(pa.array(lines.journal[chosen]))
    if what == "offset":
        return pa.array(lines.offset[chosen])
    if what == "producer":
        return pa.array([f"{producer:012x}" for producer in stamps.producer[chosen].tolist()])
    micros = ((stamps.clock[chosen] >> np.uint64(4)).astype(np.int64) - _UNIX) // 10
    return pa.array(micros).cast(pa.timestamp("us", "UTC"))

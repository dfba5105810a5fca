"""From documents that are committed to rows of their table, each with the queue that it goes to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.batch.inputs.conform import conform
from penstock.errors import BadInput
from penstock.journals.format.documents import parse
from penstock.journals.format.hints import META
from penstock.journals.format.uuids import UNIX
from penstock.journals.shuffle.queues.keys import clock_queues, key_queues
from penstock.journals.shuffle.sequencing.columns import Lines, Parser
from penstock.journals.shuffle.sequencing.validation import validator
from penstock.sources.journals import JournalSource

Array: TypeAlias = "np.ndarray[Any, Any]"

_log = logging.getLogger(__name__)

_SHOWN = 200
_DOCUMENT = "the document"


class RowMaker:
    """Makes rows of the documents of one source."""

    def __init__(self, name: str, source: JournalSource) -> None:
        self._name = name
        self._source = source
        self._schema = source.table.input_schema()
        read = [field for field in self._schema if field.name not in source.meta]
        self.parser = Parser(pa.schema(read))
        self._validator = None if source.schema is None else validator(source.schema)

    def rows(self, lines: Lines, chosen: Array) -> tuple[Array, pa.RecordBatch]:
        """Those of the chosen documents that fulfil the JSON schema and fit the table; and these as rows.

        The others fail with `BadInput`, or are left out if the source says so.
        """
        why = self._unfit(lines, chosen)
        kept = _without(chosen, why)
        conformed = _Conformed(self._schema)
        conformed.add(self._columns(lines, kept))
        why |= {int(kept[place]): problem for place, problem in conformed.problems.items()}
        if why:
            self._tell(lines, why)
        return _without(kept, why), conformed.whole()

    def queues(self, rows: pa.RecordBatch, clock: Array) -> Array:
        source = self._source
        return (
            key_queues(rows, source.key, source.queues) if source.key else clock_queues(clock, source.queues)
        )

    def _tell(self, lines: Lines, why: Mapping[int, str]) -> None:
        first = min(why)
        what = f"source {self._name}, {lines.where(first)}: {why[first][:_SHOWN]}"
        if self._source.on_invalid == "fail":
            raise BadInput(
                what,
                left="the epoch was not committed, and is tried again",
                hint='let such documents be left out with on_invalid="skip", or change table and schema',
            )
        _log.warning("%s; left out, with %d others", what, len(why) - 1)

    def _columns(self, lines: Lines, chosen: Array) -> pa.RecordBatch:
        """The chosen documents, with the fields as they were read."""
        read = lines.fields.take(pa.array(chosen))
        columns = {name: read.column(name) for name in read.schema.names}
        for name, what in self._source.meta.items():
            columns[name] = _meta(lines, chosen, what)
        return pa.RecordBatch.from_pydict({name: columns[name] for name in self._schema.names})

    def _unfit(self, lines: Lines, chosen: Array) -> dict[int, str]:
        """Of the chosen documents, those that do not fulfil the JSON schema or lack a field, and why."""
        why = self._nulls(lines, chosen)
        if lines.unfit:
            why |= {number: lines.unfit[number] for number in chosen.tolist() if number in lines.unfit}
        if self._validator is not None:
            for number in chosen.tolist():
                problem = self._problem(lines.line(number)) if number not in why else None
                if problem is not None:
                    why[number] = problem
        return why

    def _problem(self, line: bytes) -> str | None:
        assert self._validator is not None
        try:
            document = parse(line)
            # The schema is about what the producer had to say.
            del document[META]
            return self._validator(document)
        except BadInput as error:
            return error.what

    def _nulls(self, lines: Lines, chosen: Array) -> dict[int, str]:
        """Of the chosen documents, those without a field that every row must have."""
        found: dict[int, str] = {}
        for each in self._schema:
            if each.nullable or each.name in self._source.meta:
                continue
            column = lines.fields.column(each.name)
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                for number in chosen[nulls[chosen]].tolist():
                    found.setdefault(number, f"the document has no {each.name}, which may not be null")
        return found


@dataclass(slots=True)
class _Conformed:
    """Rows as the table has them, and by their place the ones that cannot be."""

    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, begin: int = 0) -> None:
        try:
            self.batches.append(conform(batch, self.schema, file=_DOCUMENT))
        except BadInput as error:
            if batch.num_rows == 1:
                self.problems[begin] = error.what.removeprefix(f"{_DOCUMENT}, ")
                return
            middle = batch.num_rows // 2
            self.add(batch.slice(0, middle), begin)
            self.add(batch.slice(middle), begin + middle)

    def whole(self) -> pa.RecordBatch:
        table = pa.Table.from_batches(self.batches, self.schema).combine_chunks()
        return next(iter(table.to_batches()), pa.RecordBatch.from_pylist([], self.schema))


def _without(chosen: Array, why: Mapping[int, str]) -> Array:
    return chosen[~np.isin(chosen, list(why))] if why else chosen


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
    micros = ((stamps.clock[chosen] >> np.uint64(4)).astype(np.int64) - UNIX) // 10
    return pa.array(micros).cast(pa.timestamp("us", "UTC"))

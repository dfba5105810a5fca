"""Lines of journals as columns: their stamps as numbers, and the fields that a table declares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.batch.inputs.formats.jsonl import read_documents, readable_schema
from penstock.errors import BadInput
from penstock.journals.format import documents
from penstock.journals.format.hints import META
from penstock.journals.shuffle.sequencing.stamps import Stamps
from penstock.types.arrow import has_inside

Array: TypeAlias = "np.ndarray[Any, Any]"

_NEWLINE = 10


@dataclass(frozen=True, slots=True)
class JournalLines:
    """Whole lines of a journal, from the offset ``begin`` on."""

    journal: str
    begin: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Lines:
    """The documents of several pieces, in their order, one entry each.

    ``journal`` is the number of the piece's journal among ``journals``. ``offset`` and ``end`` are where the
    line stands in its journal. ``fields`` has the fields of the table as far as a document has them. Those of
    a document that does not fit the table are null, and ``unfit`` says why.
    """

    journals: tuple[str, ...]
    journal: Array
    offset: Array
    end: Array
    stamps: Stamps
    uuids: pa.Array
    fields: pa.RecordBatch
    text: bytes
    starts: Array
    ends: Array
    unfit: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.journal)

    def select(self, chosen: Array) -> Lines:
        """Some of the documents."""
        stamps = self.stamps
        numbers = pa.array(chosen)
        return Lines(
            self.journals,
            self.journal[chosen],
            self.offset[chosen],
            self.end[chosen],
            Stamps(stamps.producer[chosen], stamps.clock[chosen], stamps.flag[chosen], stamps.bad[chosen]),
            self.uuids.take(numbers),
            self.fields.take(numbers),
            self.text,
            self.starts[chosen],
            self.ends[chosen],
            self._unfit_of(chosen) if self.unfit else {},
        )

    def _unfit_of(self, chosen: Array) -> dict[int, str]:
        return {n: self.unfit[old] for n, old in enumerate(chosen.tolist()) if old in self.unfit}

    def line(self, number: int) -> bytes:
        return self.text[self.starts[number] : self.ends[number]]

    def where(self, number: int) -> str:
        return f"journal {self.journals[self.journal[number]]}, offset {self.offset[number]}"


class Parser:
    """Makes documents of lines; ``schema`` is that of the table."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        meta = pa.field(META, pa.struct([("uuid", pa.string())]))
        self._explicit = pa.schema([meta, *readable_schema(schema)])
        types = enumerate(self._explicit.types)
        self._decimals = [n for n, each in types if has_inside(each, pa.types.is_decimal)]

    def parse(self, pieces: Sequence[JournalLines]) -> Lines:
        """The documents of ``pieces``; `BadInput` names journal and offset of a line that is none."""
        text = b"".join(piece.data for piece in pieces)
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE) + 1
        starts = np.concatenate((np.zeros(1, np.int64), ends))[:-1]
        journals = tuple(dict.fromkeys(piece.journal for piece in pieces))
        numbers = {journal: number for number, journal in enumerate(journals)}
        sizes = np.array([len(piece.data) for piece in pieces], np.int64)
        lines = np.searchsorted(ends, np.cumsum(sizes), side="right")
        counts = lines - np.concatenate(([0], lines[:-1]))
        journal = np.repeat(np.array([numbers[piece.journal] for piece in pieces], np.int32), counts)
        shift = np.array([piece.begin for piece in pieces], np.int64) - (np.cumsum(sizes) - sizes)
        shifts = np.repeat(shift, counts)
        raw = _Raw(journals, journal, starts + shifts, text, starts, ends)
        raw.check()
        table = _joined(list(self._read(raw, 0, len(starts))))
        uuids = pc.struct_field(table.column(META), "uuid")
        stamps = Stamps.parse(uuids)
        if stamps.bad.any():
            raise raw.no_stamp(int(np.flatnonzero(stamps.bad)[0]))
        fields = table.select(list(range(1, table.num_columns)))
        places = (starts + shifts, ends + shifts)
        return Lines(journals, journal, *places, stamps, uuids, fields, text, starts, ends, raw.unfit)

    def _read(self, raw: _Raw, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """The documents from number ``begin`` to ``end``, in portions: as large as possible."""
        try:
            table = raw.read(begin, end, self._explicit)
            # Arrow's reader looks at the digits of a decimal before it appends zeros.
            for number in self._decimals:
                table.column(number).validate(full=True)
        except pa.ArrowInvalid as error:
            why = str(error)
        else:
            if table.num_rows == end - begin:
                yield from table.combine_chunks().to_batches()
                return
            why = "the line has several documents"
        if end - begin > 1:
            middle = (begin + end) // 2
            yield from self._read(raw, begin, middle)
            yield from self._read(raw, middle, end)
        else:
            yield self._stamp_alone(raw, begin, why)

    def _stamp_alone(self, raw: _Raw, number: int, why: str) -> pa.RecordBatch:
        """A document that does not fit the table."""
        raw.unfit[number] = why
        uuid = raw.only_uuid(number)
        nulls = [pa.nulls(1, each.type) for each in self._explicit][1:]
        meta = pa.array([{"uuid": uuid}], self._explicit.field(META).type)
        return pa.RecordBatch.from_arrays([meta, *nulls], schema=self._explicit)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


@dataclass(frozen=True, slots=True)
class _Raw:
    """Lines, and where they come from."""

    journals: tuple[str, ...]
    journal: Array
    offset: Array
    text: bytes
    starts: Array
    ends: Array
    unfit: dict[int, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise `BadInput` for a line that Arrow would take for something else, or be killed by.

        It passes over empty lines, takes several documents on a line and one on several, and is killed by a
        null that comes first. Where each line begins and ends with braces, and there are as many documents as
        lines, none of that can be.
        """
        content = np.frombuffer(self.text, np.uint8)
        braces = (content[self.starts] == ord("{")) & (content[np.maximum(self.ends - 2, 0)] == ord("}"))
        for number in np.flatnonzero(~braces).tolist():
            self.parse(number)
        if not self.text.isascii():
            try:
                self.text.decode()
            except UnicodeDecodeError as error:
                self.parse(int(np.searchsorted(self.ends, error.start, side="right")))

    def read(self, begin: int, end: int, schema: pa.Schema) -> pa.Table:
        first, last = int(self.starts[begin]), int(self.ends[end - 1])
        return read_documents(pa.py_buffer(self.text).slice(first, last - first), schema, "ignore")

    def parse(self, number: int) -> dict[str, Any]:
        line = self.text[self.starts[number] : self.ends[number]]
        try:
            return documents.parse(line)
        except BadInput as error:
            raise self._error(number, error.what if line.strip() else "the line is empty") from None

    def only_uuid(self, number: int) -> str:
        """The UUID of a document; `BadInput` if it has none, or two."""
        document = self.parse(number)
        try:
            documents.stamp_of(document)
            json.loads(self.text[self.starts[number] : self.ends[number]], object_pairs_hook=_without_twins)
        except BadInput as error:
            raise self._error(number, error.what) from None
        return str(document[META]["uuid"])

    def no_stamp(self, number: int) -> BadInput:
        """Why a document has none."""
        try:
            self.only_uuid(number)
        except BadInput as error:
            return error
        return self._error(number, "the document has no _meta.uuid that can be read")

    def _error(self, number: int, why: str) -> BadInput:
        return BadInput(
            f"journal {self.journals[self.journal[number]]}, offset {self.offset[number]}: {why}",
            hint="look at it with `penstock journal cat`, and at all lines with `penstock journal verify`",
        )


def _without_twins(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    names = [name for name, _ in members]
    for name in (META, "uuid"):
        if names.count(name) > 1:
            raise BadInput(f"the document has {name} twice")
    return found

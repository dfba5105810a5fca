"""Lines of journals as columns: their stamps as numbers, and the fields that a table declares."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from penstock.errors import BadInput
from penstock.inputs.formats.jsonl import readable_schema
from penstock.shuffle.stamps import Stamps

Array: TypeAlias = "np.ndarray[Any, Any]"

_META = "_meta"
_NEWLINE = 10
_MOST = (1 << 31) - 1
_ROW = re.compile(r"\bin row (\d+)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of a journal, from the offset ``begin`` on."""

    journal: str
    begin: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Lines:
    """The documents of several pieces, in their order, one entry each.

    ``journal`` is the number of the piece's journal among ``journals``. ``offset`` and ``end`` are where the
    line stands in its journal. ``fields`` has the fields of the table as far as a document has them; those of
    acks are null.
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
        )

    def line(self, number: int) -> bytes:
        return self.text[self.starts[number] : self.ends[number]]

    def where(self, number: int) -> str:
        return f"journal {self.journals[self.journal[number]]}, offset {self.offset[number]}"


class Parser:
    """Makes documents of lines; ``schema`` is that of the table."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        meta = pa.field(_META, pa.struct([("uuid", pa.string())]))
        self._explicit = pa.schema([meta, *readable_schema(schema)])

    def parse(self, pieces: Sequence[Piece]) -> Lines:
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
        where = _Where(journals, journal, starts + shifts, text, starts, ends)
        table = self._read(text, where)
        uuids = table.column(_META).field("uuid")
        stamps = Stamps.parse(uuids)
        if stamps.bad.any():
            raise where.wrong(int(np.flatnonzero(stamps.bad)[0]), _no_stamp)
        fields = table.select(self.schema.names)
        places = (starts + shifts, ends + shifts)
        return Lines(journals, journal, *places, stamps, uuids, fields, text, starts, ends)

    def _read(self, text: bytes, where: _Where) -> pa.RecordBatch:
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=min(len(text) + 1, _MOST)),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._explicit, unexpected_field_behavior="ignore"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise where.refused(error) from error
        if table.num_rows != len(where.starts):
            raise where.refused(None)
        (batch,) = table.combine_chunks().to_batches()
        return batch


@dataclass(frozen=True, slots=True)
class _Where:
    """Where lines come from, for the errors."""

    journals: tuple[str, ...]
    journal: Array
    offset: Array
    text: bytes
    starts: Array
    ends: Array

    def refused(self, error: Exception | None) -> BadInput:
        """The error for text that Arrow could not read, naming the first line that is to blame."""
        for number in range(len(self.starts)):
            if (why := _why_none(self.text[self.starts[number] : self.ends[number]])) is not None:
                return self._error(number, why)
        row = _ROW.search(str(error))
        if row is not None and int(row[1]) < len(self.starts):
            return self._error(int(row[1]), str(error))
        what = f"journals {', '.join(self.journals[:3])} from offset {self.offset[0]} on: {error}"
        return BadInput(what, hint="check the types that the table declares against the documents")

    def wrong(self, number: int, why: Any) -> BadInput:
        return self._error(number, why(self.text[self.starts[number] : self.ends[number]]))

    def _error(self, number: int, why: str) -> BadInput:
        return BadInput(
            f"journal {self.journals[self.journal[number]]}, offset {self.offset[number]}: {why}",
            hint="look at it with `penstock journal cat`, and at all lines with `penstock journal verify`",
        )


def _why_none(line: bytes) -> str | None:
    """Why a line is no document; None if it is one."""
    try:
        found = json.loads(line)
    except ValueError as error:
        return f"the line is not JSON: {error}" if line.strip() else "the line is empty"
    return None if isinstance(found, dict) else f"the line is a {type(found).__name__}, not an object"


def _no_stamp(line: bytes) -> str:
    meta = json.loads(line).get(_META)
    found = meta.get("uuid") if isinstance(meta, dict) else None
    if found is None:
        return "the document has no _meta.uuid"
    return f"_meta.uuid is {str(found)[:80]!r}, not a version 1 UUID of a producer"

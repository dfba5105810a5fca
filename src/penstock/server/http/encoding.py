"""Results as HTTP sends them: JSON, CSV or an Arrow stream, in pieces as batches come.

An encoder gives bytes for the beginning, for each batch, and for the end; it holds one batch at most.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from penstock.server.http.values import EXACT, scalar
from penstock.types import postgres
from penstock.types.postgres import Column

SLICE = 4096
"""Rows of a batch that are encoded at once."""


class Encoder(ABC):
    """One result on its way out."""

    content_type: str
    suffix: str

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns

    @abstractmethod
    def begin(self) -> bytes:
        """What comes before the rows."""

    @abstractmethod
    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """The rows of a batch, in pieces."""

    @abstractmethod
    def end(self, tail: dict[str, Any]) -> bytes:
        """What comes after them; ``tail`` is what to tell about the result as a whole."""


class JsonEncoder(Encoder):
    """One object: columns, rows as arrays, and at the end the number of rows."""

    content_type = "application/json"
    suffix = "json"

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__(columns)
        self._first = True

    def begin(self) -> bytes:
        return f'{{"columns":{_dumps(described(self.columns))},"rows":['.encode()

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        for start in range(0, batch.num_rows, SLICE):
            part = batch.slice(start, SLICE)
            values = [_values(part.column(n), column) for n, column in enumerate(self.columns)]
            rows = zip(*values, strict=True) if values else ([] for _ in range(part.num_rows))
            comma = "" if self._first else ","
            self._first = False
            yield (comma + _dumps(list(rows))[1:-1]).encode()

    def end(self, tail: dict[str, Any]) -> bytes:
        return b"]," + _dumps(tail).encode()[1:]


class CsvEncoder(Encoder):
    """By RFC 4180 with a line of names; null is an empty field, an empty text is quoted."""

    content_type = "text/csv; charset=utf-8; header=present"
    suffix = "csv"

    def begin(self) -> bytes:
        names = (f'"{column.name.replace(chr(34), chr(34) * 2)}"' for column in self.columns)
        return (",".join(names) + "\n").encode()

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        options = pa_csv.WriteOptions(include_header=False)
        for start in range(0, batch.num_rows, SLICE):
            part = batch.slice(start, SLICE)
            arrays = [_csv_column(part.column(n), column) for n, column in enumerate(self.columns)]
            sink = io.BytesIO()
            names = [str(n) for n in range(len(arrays))]
            pa_csv.write_csv(pa.RecordBatch.from_arrays(arrays, names), sink, options)
            yield sink.getvalue()

    def end(self, tail: dict[str, Any]) -> bytes:  # noqa: ARG002
        return b""


class ArrowEncoder(Encoder):
    """An Arrow IPC stream."""

    content_type = "application/vnd.apache.arrow.stream"
    suffix = "arrows"

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__(columns)
        fields = [pa.field(column.name, column.type, column.nullable) for column in columns]
        self._schema = pa.schema(fields)
        self._sink = io.BytesIO()
        self._writer: Any = None

    def begin(self) -> bytes:
        self._writer = pa.ipc.new_stream(self._sink, self._schema)
        return self._taken()

    def encode(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        # By position: several columns may have one name.
        self._writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        yield self._taken()

    def end(self, tail: dict[str, Any]) -> bytes:  # noqa: ARG002
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


ENCODERS: dict[str, type[Encoder]] = {"json": JsonEncoder, "arrow": ArrowEncoder, "csv": CsvEncoder}


def described(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Columns as people know their types."""
    return [
        {"name": column.name, "type": postgres.type_name(column.oid), "nullable": column.nullable}
        for column in columns
    ]


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _values(array: pa.Array, column: Column) -> list[Any]:
    kind = array.type
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return list(array.to_pylist())
    if (pa.types.is_integer(kind) and _is_exact(array)) or _is_finite(array):
        return list(array.to_pylist())
    if column.oid in (postgres.JSON, postgres.JSONB):
        return [_parsed(value) for value in array.to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return list(array.to_pylist())
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        # Python knows microseconds only, and must not stumble over what is finer.
        array = pc.cast(array, pa.timestamp("us", kind.tz), safe=False)
    return [scalar(value) for value in array.to_pylist()]


def _is_exact(array: pa.Array) -> bool:
    if array.type.bit_width < 64 or array.null_count == len(array):
        return True
    ends = pc.min_max(array).as_py()
    return bool(ends["min"] >= -EXACT and ends["max"] <= EXACT)


def _is_finite(array: pa.Array) -> bool:
    """Whether it has floating-point numbers, and JSON has them all."""
    if not pa.types.is_floating(array.type):
        return False
    return pc.all(pc.is_finite(array), min_count=0).as_py() is True


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return scalar(value)
    try:
        return json.loads(value, parse_constant=str)
    except ValueError:
        return value


def _csv_column(array: pa.Array, column: Column) -> pa.Array:
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return array
    if _is_finite(array):
        return array
    if column.oid in (postgres.JSON, postgres.JSONB) and pa.types.is_large_string(kind):
        return array
    texts = [
        value if value is None or isinstance(value, str) else _dumps(value)
        for value in map(scalar, array.to_pylist())
    ]
    return pa.array(texts, pa.string())

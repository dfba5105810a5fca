"""From records of Kafka to rows: JSON objects, raw records, or what a function makes of them."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.json

from penstock.batch.inputs.formats.jsonl import readable_type
from penstock.errors import DefinitionError, NullInField, TransientError, TypeMismatch, UsageError
from penstock.spark.fitting import fit, from_rows
from penstock.types.arrow import has_inside
from penstock.types.lattice import is_same
from penstock.types.tables import Table, refuse_zones

if TYPE_CHECKING:
    from confluent_kafka import Message

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KafkaHeader(Table):
    """An element of the field ``headers: list[KafkaHeader]`` of raw records."""

    name: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as a function for ``value`` gets it."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Make: TypeAlias = Callable[[KafkaRecord], Mapping[str, object] | None]
"""From a record to a row, or to None for a record that is no row."""

Value: TypeAlias = Literal["json", "raw"] | Make
"""What becomes of a record."""
Decoder: TypeAlias = Callable[[Sequence["Message"]], pa.RecordBatch]


class _Unfit(Exception):
    """A record gives no row."""


UNFIT = (_Unfit, pa.ArrowException, NullInField, TypeMismatch, UnicodeDecodeError)
"""What is raised where records give no rows."""


def decoder(table: type[Table], value: Value) -> Decoder:
    """What makes rows of records, or raises one of `UNFIT`."""
    if value == "json":
        return lambda messages: _from_json(table, messages)
    if value == "raw":
        return lambda messages: _from_raw(table, messages)
    make: Any = value
    return lambda messages: _from_function(table, make, messages)


def check(where: str, table: type[Table], value: object) -> None:
    """Raise unless records can become rows of ``table`` that way."""
    refuse_zones(where, table)
    if value == "raw":
        _check_raw(where, table)
    elif value == "json":
        for each in table.input_schema():
            _json_type(each.type, each.name)
    elif not callable(value):
        raise UsageError(f"{where}: value={value!r} is not possible", hint="'json', 'raw', or a function")


def _from_json(table: type[Table], messages: Sequence[Message]) -> pa.RecordBatch:
    """All values in one go. Each stands in an object of its own on a line: the end of one closes what it
    opened, so that a value that is broken never joins with its neighbour.
    """
    schema = table.input_schema()
    values: list[Any] = [each.value() for each in messages]
    if None in values:
        raise _Unfit("it has no value")
    data = b"".join(b'{"v":%b}\n' % each for each in values)
    kinds = pa.struct([(each.name, _json_type(each.type, each.name)) for each in schema])
    read = pyarrow.json.read_json(
        io.BytesIO(data),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("v", kinds)]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    objects = read.column("v").combine_chunks()
    if len(objects) != len(values) or objects.null_count:
        raise _Unfit("it is not one JSON object")
    columns = [_cast(objects.field(n), each.type) for n, each in enumerate(schema)]
    batch = pa.RecordBatch.from_arrays(columns, names=schema.names)
    batch.validate(full=True)
    return fit(table.__table_name__, batch, schema)


def _json_type(kind: pa.DataType, name: str) -> pa.DataType:
    """As what a value of JSON is read that becomes one of ``kind``."""
    if pa.types.is_binary(kind):
        return pa.string()
    if has_inside(kind, pa.types.is_binary):
        raise DefinitionError(
            f"the field {name} has bytes inside, which JSON has not", hint="use str, or value=a function"
        )
    return readable_type(kind)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_binary(kind):
        return column if is_same(column.type, kind) else column.cast(kind)
    try:
        values = [
            None if each is None else base64.b64decode(each, validate=True) for each in column.to_pylist()
        ]
    except (binascii.Error, ValueError) as error:
        raise _Unfit(f"bytes are not base64: {error}") from error
    return pa.array(values, kind)


def _timestamp(message: Message) -> datetime | None:
    kind, milliseconds = message.timestamp()
    return _EPOCH + timedelta(milliseconds=milliseconds) if kind else None


_RAW: dict[str, tuple[tuple[pa.DataType, ...], Callable[[Any], Any]]] = {
    "key": ((pa.binary(), pa.string()), lambda m: m.key()),
    "value": ((pa.binary(), pa.string()), lambda m: m.value()),
    "topic": ((pa.string(),), lambda m: m.topic()),
    "partition": ((pa.int64(),), lambda m: m.partition()),
    "offset": ((pa.int64(),), lambda m: m.offset()),
    "timestamp": ((pa.timestamp("us", "UTC"),), _timestamp),
    "headers": (
        (pa.list_(pa.field("element", pa.struct(list(KafkaHeader.arrow_schema())), False)),),
        lambda m: [{"name": name, "value": value} for name, value in m.headers() or ()],
    ),
}


def _check_raw(where: str, table: type[Table]) -> None:
    for each in table.input_schema():
        if each.name not in _RAW or each.type not in _RAW[each.name][0]:
            kinds = "; ".join(f"{name}: {' or '.join(map(str, types))}" for name, (types, _) in _RAW.items())
            raise DefinitionError(
                f"{where}: a raw record has no field {each.name} of type {each.type}",
                hint=f"fields of raw records: {kinds}",
            )


def _from_raw(table: type[Table], messages: Sequence[Message]) -> pa.RecordBatch:
    schema = table.input_schema()
    columns = []
    for each in schema:
        values = [_RAW[each.name][1](message) for message in messages]
        # Text is checked to be text on its way.
        is_bytes = each.name in ("key", "value")
        columns.append(
            pa.array(values, pa.binary()).cast(each.type) if is_bytes else pa.array(values, each.type)
        )
    return fit(table.__table_name__, pa.RecordBatch.from_arrays(columns, names=schema.names), schema)


def _from_function(table: type[Table], make: Make, messages: Sequence[Message]) -> pa.RecordBatch:
    schema = table.input_schema()
    rows = []
    for message in messages:
        try:
            row = make(_record(message))
        except (TransientError, ConnectionError, TimeoutError):
            raise
        except Exception as error:
            raise _Unfit(f"{type(error).__name__}: {error}") from error
        if row is not None:
            rows.append(dict(row))
    return fit(table.__table_name__, from_rows(rows, schema), schema)


def _record(message: Message) -> KafkaRecord:
    headers: Any = message.headers() or ()
    plain: Any = message
    return KafkaRecord(
        plain.topic(),
        plain.partition(),
        plain.offset(),
        _timestamp(message),
        plain.key(),
        plain.value(),
        tuple((name, value) for name, value in headers),
    )

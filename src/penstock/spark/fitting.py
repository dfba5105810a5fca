"""Do rows fit a schema? Conversions that lose nothing, and nulls only where they are declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Number
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import NullInField, TypeMismatch
from penstock.types.arrow import has_offsets
from penstock.types.lattice import is_of_one_kind

_UNFIT = (ValueError, TypeError, OverflowError, AttributeError, NotImplementedError)
"""What Arrow raises for values of Python that it cannot take."""


def fit(table: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns, types and nullability of ``schema``, or `TypeMismatch`.

    A column is cast within its kind only: to a wider integer, another unit of time, a string with
    other offsets. A number never becomes a text, nor a text a number.
    """
    columns = []
    for field in schema:
        name, column = f"{table}.{field.name}", batch.column(field.name)
        if not is_of_one_kind(column.type, field.type):
            raise TypeMismatch(
                f"{name} is {column.type}, declared as {field.type}", hint=_mend(column.type, field.type)
            )
        _check_nulls(name, field, column)
        columns.append(column if column.type == field.type else _cast(name, column, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _mend(have: pa.DataType, want: pa.DataType) -> str:
    if pa.types.is_timestamp(have) and pa.types.is_timestamp(want):
        if have.tz is None:
            return (
                'say its zone with pc.assume_timezone(column, "UTC"), or declare it as '
                "Annotated[datetime, Timestamp(naive=True)]"
            )
        return "take the zone off with pc.local_timestamp(column), or declare it as datetime"
    return "cast it in the transform"


def from_rows(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows given as dictionaries, with the types of ``schema``, or `TypeMismatch`.

    A field that a row lacks is null; `fit` tells where it may be. What else a row has is left out.
    """
    rows = list(rows)
    columns = [_column(field, [row.get(field.name) for row in rows]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    """Values as Arrow. Where a whole number is declared, Arrow would cut off a fraction without a word."""
    try:
        made = pa.array(values, field.type)
        cut = _fraction(values, field.type)
    except _UNFIT as error:
        raise TypeMismatch(f"{field.name} does not fit {field.type}: {error}") from error
    if cut is not None:
        raise TypeMismatch(
            f"{field.name} is {cut!r}, declared as {field.type}",
            hint="round it where it is made, or declare a float or a Decimal",
        )
    return made


def _fraction(values: list[Any], kind: pa.DataType) -> Any:
    """One of the numbers in values of ``kind`` that stand where a whole one should; None if there are none.

    A time is a whole number too, of microseconds or days.
    """
    if has_offsets(kind):
        return _fraction([each for value in values if value is not None for each in value], kind.value_type)
    if pa.types.is_struct(kind):
        members = [_members(value, kind) for value in values if value is not None]
        found = (_fraction([each.get(f.name) for each in members], f.type) for f in kind)
        return next((each for each in found if each is not None), None)
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return None
    types = set(map(type, values))
    wrong = {each for each in types if issubclass(each, Number) and not issubclass(each, Integral)}
    return next((value for value in values if type(value) in wrong), None)


def _members(value: Any, kind: pa.DataType) -> dict[str, Any]:
    """Besides a dictionary, Arrow takes a tuple in the order of the fields, and a list of pairs."""
    return dict(zip((f.name for f in kind), value, strict=False) if isinstance(value, tuple) else value)


def _cast(name: str, column: pa.Array, want: pa.DataType) -> pa.Array:
    try:
        return column.cast(want)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeMismatch(f"{name} is {column.type}, declared as {want}: {error}") from error


def _check_nulls(name: str, field: pa.Field, column: pa.Array) -> None:
    """Raise `NullInField` for a null where none is allowed, at any depth."""
    if column.null_count and not field.nullable:
        raise NullInField(
            f"{name} is null in {column.null_count} of {len(column)} rows, "
            "but it is declared without `| None`",
            hint=f"fill the value in the transform that writes it, or declare {field.name} as nullable",
        )
    if has_offsets(column.type):
        _check_nulls(f"{name}[]", field.type.value_field, column.flatten())
    elif pa.types.is_struct(column.type):
        present = column.drop_null() if column.null_count else column
        for have, values in zip(present.type, present.flatten(), strict=True):
            _check_nulls(f"{name}.{have.name}", field.type.field(have.name), values)


def unchanged(before: pa.Array, after: pa.Array) -> bool:
    """Whether two columns hold the same values, whatever their exact type. NaN is equal to itself."""
    if after.type != before.type:
        if not is_of_one_kind(after.type, before.type):
            return False
        try:
            after = after.cast(before.type)
        except pa.ArrowInvalid:
            return False
    return _same(before, after)


def _same(one: pa.Array, other: pa.Array) -> bool:
    if one.equals(other):
        return True
    kind = one.type
    if pa.types.is_floating(kind):
        bits = {32: pa.int32(), 64: pa.int64()}.get(kind.bit_width, pa.int16())
        return bool(one.view(bits).equals(other.view(bits)))
    if not one.is_null().equals(other.is_null()):
        return False
    if has_offsets(kind):
        return bool(pc.list_value_length(one).equals(pc.list_value_length(other))) and _same(
            one.flatten(), other.flatten()
        )
    if pa.types.is_struct(kind):
        return all(_same(a, b) for a, b in zip(one.flatten(), other.flatten(), strict=True))
    return False

"""Making a file's columns what a table declares, or saying why that cannot be.

Allowed is what `penstock.types.lattice.fits` allows. A time without a zone is taken as UTC, unless the
table says otherwise. Whether a value really fits, where the types alone cannot say, is checked as it is read.
"""

from __future__ import annotations

import difflib

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as t

from penstock.core.ranges import counted
from penstock.errors import BadInput, TypeMismatch
from penstock.types.arrow import has_offsets, is_text
from penstock.types.lattice import fits
from penstock.types.tables import zone_of

_SAYS_ZONE = r"(?i)\d[t ]\d{2}.*(z|[+-]\d{2}(:?\d{2})?)$"
_TYPE = "declare the field with the file's type, and convert it in a transform"
_LOCAL = "declare the field with Timestamp(naive=True), and convert it in a transform"


def check_schema(file_schema: pa.Schema, table_schema: pa.Schema, *, file: str) -> None:
    """Raise `BadInput` or `TypeMismatch`, naming every column, unless files can fill the table."""
    missing, mismatched = [], []
    for field in table_schema:
        if field.name not in file_schema.names:
            if not field.nullable:
                near = difflib.get_close_matches(field.name, file_schema.names, 1)
                missing.append(field.name + (f" (it has {near[0]})" if near else ""))
        elif not fits(file_schema.field(field.name).type, field.type):
            found = file_schema.field(field.name).type
            mismatched.append(f"{field.name} is {found} in the file and {field.type} in the table")
    if missing:
        raise BadInput(
            f"{file} has no column {', '.join(missing)}",
            hint="rename the field or the column, or declare the field Optional to have nulls for it",
        )
    if mismatched:
        raise TypeMismatch(
            f"{file} does not fit the table: {'; '.join(mismatched)}",
            hint="declare the field with the file's type, and convert it in a transform",
        )


def conform(
    batch: pa.RecordBatch, schema: pa.Schema, *, file: str = "the batch", row: int = 0
) -> pa.RecordBatch:
    """The batch with exactly the columns and types of ``schema``.

    ``file`` and ``row``, the file's row number of the batch's first row, are for the errors: a
    missing column or a null where none may be is `BadInput`, a type that cannot fit `TypeMismatch`.
    """
    if batch.schema.equals(schema) and not any(map(_cares, schema)):
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            check_schema(batch.schema, pa.schema([field]), file=file)
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        array = batch.column(index)
        try:
            array = _cast(array, field.type, zone_of(field))
        except _ImpossibleError as error:
            raise TypeMismatch(f"{file}, column {field.name}: {error}") from None
        except pa.ArrowInvalid as error:
            raise BadInput(
                f"{file}, column {field.name}, rows {row}-{row + batch.num_rows}: a value does not fit "
                f"{field.type}: {error}",
                hint=_LOCAL if zone_of(field) else _TYPE,
            ) from error
        if (bad := _first_null(array, field)) is not None:
            place, path = bad
            raise BadInput(
                f"{file}, {counted(row + place)}: {path} is null, and its table does not allow that",
                hint=f"declare {path} Optional, or mend the file",
            )
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _ImpossibleError(Exception):
    """No value of the one type can be read as the other."""


def _cast(array: pa.Array, target: pa.DataType, zone: str | None = None) -> pa.Array:
    if array.type.equals(target):
        return array
    if not fits(array.type, target):
        raise _ImpossibleError(f"{array.type} in the file cannot be read as {target}")
    if is_text(array.type) and t.is_timestamp(target) and target.tz is not None:
        return _instants(array, target, zone or "UTC")
    if zone and t.is_timestamp(array.type) and array.type.tz is None:
        # A time that a change of clocks made twice, or left out, is an error and not a guess.
        array = pc.assume_timezone(array, zone)
    if t.is_null(array.type):
        return pa.nulls(len(array), target)
    if t.is_dictionary(array.type):
        return _cast(array.dictionary_decode(), target)
    if t.is_struct(target):
        return _cast_struct(array, target)
    if t.is_nested(target):
        return _cast_list(array, target)
    return pc.cast(array, target, safe=True)


def _instants(texts: pa.Array, target: pa.TimestampType, zone: str) -> pa.Array:
    """Texts as instants: some may say their zone, and the others are local times of ``zone``."""
    says = pc.match_substring_regex(texts, _SAYS_ZONE)
    said = pc.cast(pc.if_else(says, texts, None), target)
    local = pc.cast(pc.if_else(says, None, texts), pa.timestamp(target.unit))
    return pc.coalesce(said, pc.cast(pc.assume_timezone(local, zone), target))


def _cast_struct(array: pa.StructArray, target: pa.StructType) -> pa.Array:
    names = [field.name for field in array.type]
    children = [
        _cast(array.field(names.index(field.name)), field.type)
        if field.name in names
        else pa.nulls(len(array), field.type)
        for field in target
    ]
    if not children:
        return pc.cast(array, target)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _cast_list(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Lists and maps keep their offsets; only what they hold is cast."""
    if t.is_map(target):
        items = _cast_struct(_entries(array), _entries_type(target))
        return pa.Array.from_buffers(
            target, len(array), array.buffers()[:2], array.null_count, array.offset, [items]
        )
    plain = pa.large_list if t.is_large_list(target) else pa.list_
    # pyarrow converts between the kinds of lists; what they hold must have the same type for that.
    if t.is_large_list(array.type) != t.is_large_list(target) or not has_offsets(array.type):
        array = pc.cast(array, plain(array.type.value_field))
    return pa.Array.from_buffers(
        target,
        len(array),
        array.buffers()[:2],
        array.null_count,
        array.offset,
        [_cast(array.values, target.value_type)],
    )


def _entries(array: pa.MapArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])


def _entries_type(target: pa.MapType) -> pa.StructType:
    return pa.struct([target.key_field.with_name("key"), target.item_field.with_name("value")])


def _first_null(array: pa.Array, field: pa.Field, path: str = "") -> tuple[int, str] | None:
    """Row and name of the first null that the field does not allow, at any depth."""
    path = f"{path}.{field.name}" if path else field.name
    if not field.nullable and array.null_count:
        return pc.index(array.is_null(), True).as_py(), path
    if t.is_struct(field.type):
        for i, child in enumerate(field.type):
            bad = _first_null(_where_valid(array, array.field(i)), child, path)
            if bad is not None:
                return _row_of_valid(array, bad[0]), bad[1]
    elif has_offsets(field.type) and _cares(field.type.value_field):
        bad = _first_null(array.flatten(), field.type.value_field, path)
        if bad is not None:
            return pc.list_parent_indices(array)[bad[0]].as_py(), bad[1]
    return None


def _cares(field: pa.Field) -> bool:
    """Whether a null anywhere below could be one too many."""
    if not field.nullable:
        return True
    if t.is_struct(field.type):
        return any(map(_cares, field.type))
    return has_offsets(field.type) and _cares(field.type.value_field)


def _where_valid(parent: pa.Array, child: pa.Array) -> pa.Array:
    return child.filter(parent.is_valid()) if parent.null_count else child


def _row_of_valid(parent: pa.Array, index: int) -> int:
    if not parent.null_count:
        return index
    return int(pc.indices_nonzero(parent.is_valid())[index].as_py())

"""The one place that says which type may stand for which. All of it is about Arrow's types.

From the strictest to the loosest:

- `loosens`: both hold the same values, and nulls inside are allowed wherever they were before.
- `is_same`: both hold the same values, but for nulls inside.
- `widens`: every value is one of the other type, too. A cast neither fails nor loses anything.
- `is_of_one_kind`: a cast may fail for a value, but does not change what the value is.

`fits` allows what `widens` allows, and what can be read as another kind, such as a text as a date. Where
types alone cannot say whether a value fits, it is checked as it is read.

`widens` is a partial order, if types that are the same count as one. `fits` is none, but goes together with
it: what fits a type fits all wider ones, and what is narrower than a type fits wherever that one fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyarrow import types as t

from penstock.types.arrow import NESTED, Kind, kind_of

_HELD_DIFFERENTLY = frozenset[Kind]({"text", "bytes"})
"""Kinds whose types differ only in how they lie in memory."""
_CAST_BY_VALUE = frozenset[Kind](
    {"integer", "float", "decimal", "text", "bytes", "date", "time", "instant", "local time"}
)
_READ_AS: Mapping[Kind, frozenset[Kind]] = {
    "instant": frozenset({"instant"}),
    "local time": frozenset({"local time", "instant"}),
    "date": frozenset({"date"}),
    "time": frozenset({"time"}),
    "text": frozenset({"date", "time", "instant", "local time"}),
    "bytes": frozenset({"fixed bytes", "text"}),
    "fixed bytes": frozenset({"bytes", "fixed bytes", "text"}),
}
"""What is read as another type of these kinds, value by value."""


def is_same(one: pa.DataType, other: pa.DataType) -> bool:
    """Equal but for nulls inside, for the names of a list's elements, and for the layout in memory."""
    if one.equals(other):
        return True
    kind = kind_of(one)
    if kind != kind_of(other):
        return False
    if kind in NESTED:
        pairs = _pairs(one, other)
        return pairs is not None and all(is_same(a.type, b.type) for a, b in pairs)
    return kind in _HELD_DIFFERENTLY


def loosens(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether they are the same, and ``want`` allows nulls inside wherever ``have`` may have some."""
    if not is_same(have, want):
        return False
    return all(a.nullable <= b.nullable and loosens(a.type, b.type) for a, b in _pairs(have, want) or ())


def widens(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a cast from ``have`` to ``want`` can neither fail nor lose anything. It stays within a kind."""
    if t.is_null(have) or is_same(have, want):
        return True
    if t.is_dictionary(have):
        return widens(have.value_type, want)
    kind = kind_of(have)
    if kind != kind_of(want):
        return False
    if kind == "integer":
        return _integer_widens(have, want)
    if kind == "float":
        return bool(have.bit_width <= want.bit_width)
    return kind == "decimal" and _decimal_widens(have, want)


def is_of_one_kind(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether values may be cast one by one: to another width or unit, never from a number to a text."""
    if t.is_null(have) or have.equals(want):
        return True
    if t.is_dictionary(have):
        return is_of_one_kind(have.value_type, want)
    kind = kind_of(have)
    if kind != kind_of(want):
        return False
    if kind == "list":
        return is_of_one_kind(have.value_type, want.value_type)
    if kind == "struct":
        return {f.name for f in have} == {f.name for f in want} and all(
            is_of_one_kind(have.field(f.name).type, f.type) for f in want
        )
    return kind in _CAST_BY_VALUE


def fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether values of type ``have`` may be read as ``want``."""
    if widens(have, want):
        return True
    if t.is_dictionary(have):
        return fits(have.value_type, want)
    kind, wanted = kind_of(have), kind_of(want)
    if kind == "integer":
        return _number_fits(have, want)
    if kind in ("list", "other list"):
        return wanted == "list" and fits(have.value_type, want.value_type)
    if kind == wanted == "struct":
        return _struct_fits(have, want)
    if kind == wanted == "map":
        return fits(have.key_type, want.key_type) and fits(have.item_type, want.item_type)
    # A text is a day, and Arrow's other type of dates counts milliseconds.
    is_days = kind != "text" or not t.is_date64(want)
    return wanted in _READ_AS.get(kind, ()) and is_days


def _pairs(one: pa.DataType, other: pa.DataType) -> Sequence[tuple[pa.Field, pa.Field]] | None:
    """What is inside both of two types of one kind; None if the parts of a struct have other names."""
    if t.is_struct(one):
        named_alike = [f.name for f in one] == [f.name for f in other]
        return list(zip(one, other, strict=True)) if named_alike else None
    if t.is_map(one):
        return [(one.key_field, other.key_field), (one.item_field, other.item_field)]
    return [(one.value_field, other.value_field)] if kind_of(one) == "list" else []


def _integer_widens(have: pa.DataType, want: pa.DataType) -> bool:
    spare = want.bit_width - have.bit_width
    if t.is_signed_integer(have) == t.is_signed_integer(want):
        return bool(spare >= 0)
    return bool(t.is_signed_integer(want) and spare > 0)


def _decimal_widens(have: pa.DataType, want: pa.DataType) -> bool:
    whole = want.precision - want.scale >= have.precision - have.scale
    return bool(whole and want.scale >= have.scale)


def _number_fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a whole number may be read as a type that is not simply wider."""
    if t.is_uint64(have) and t.is_int64(want):
        # There is no wider type: its values are checked one by one.
        return True
    if t.is_decimal(want):
        return bool(want.precision - want.scale >= _digits(have))
    return bool(t.is_float64(want))


def _digits(integer: pa.DataType) -> int:
    bits = integer.bit_width - t.is_signed_integer(integer)
    return len(str(2**bits - 1))


def _struct_fits(have: pa.DataType, want: pa.DataType) -> bool:
    parts = {field.name: field.type for field in have}
    return all(
        fits(parts[field.name], field.type) if field.name in parts else field.nullable for field in want
    )

"""Numbers as PostgreSQL prints and packs them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.gateway.pgwire.fields import Field, Fixed, Varying, cells_of, field, nulls, varying

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.gateway.pgwire.fields import Cells, Ints, Mask

_LOWEST_PLAIN = 1e-4
_HIGHEST_PLAIN = {4: 1e6, 8: 1e15}
"""Floats of this many bytes have an exponent from here on."""
_ARROWS_PLAIN = 1e10
"""From here on Arrow writes an exponent."""
_DIGITS = {4: 6, 8: 15}
_INT64_DIGITS = 18
_GROUP = 10_000
_NEGATIVE = 0x4000


def zeroed(array: pa.Array, kind: type[np.generic] | str) -> npt.NDArray[Any]:
    """The values as numpy has them, 0 for nulls, without a copy where there are none."""
    values: npt.NDArray[Any] = (pc.fill_null(array, 0) if array.null_count else array).to_numpy(
        zero_copy_only=False
    )
    return values.astype(kind, copy=False)


def integer_text(array: pa.Array) -> Field:
    return Varying(array.cast(pa.string()).cast(pa.binary()))


def bool_text(array: pa.Array) -> Field:
    values = zeroed(array.cast(pa.uint8()), np.uint8)
    return field(np.where(values, np.uint8(ord("t")), np.uint8(ord("f")))[:, None], array)


def float_text(array: pa.Array, extra_digits: int) -> Field:
    width = 4 if pa.types.is_float32(array.type) else 8
    values = zeroed(array, np.float32 if width == 4 else np.float64)
    if extra_digits <= 0:
        # PostgreSQL's own older way; nobody has it for large results.
        digits = max(_DIGITS[width] + extra_digits, 1)
        texts = [None if missing else _rounded(value, digits) for value, missing in _pairs(values, array)]
        return Varying(pa.array(texts, pa.binary()))
    text = array.cast(pa.string())
    size = np.abs(values)
    plain = (size >= _LOWEST_PLAIN) & (size < min(_HIGHEST_PLAIN[width], _ARROWS_PLAIN)) | (size == 0)
    if not plain.all():
        whole = ~plain & (size < _HIGHEST_PLAIN[width]) & (np.floor(size) == size)
        text = _replaced(text, whole, pa.array(values[whole].astype(np.int64)).cast(pa.string()))
        odd = ~plain & ~whole
        text = _replaced(text, odd, pa.array([_shortest(value, width) for value in values[odd]], pa.string()))
    return Varying(text.cast(pa.binary()))


def _replaced(text: pa.Array, chosen: Mask, by: pa.Array) -> pa.Array:
    return pc.replace_with_mask(text, pa.array(chosen), by) if len(by) else text


def _pairs(values: npt.NDArray[Any], array: pa.Array) -> zip[tuple[float, bool]]:
    return zip(values.tolist(), nulls(array).tolist(), strict=True)


def _rounded(value: float, digits: int) -> bytes:
    return (_unusual(value) or f"{value:.{digits}g}").encode()


def _unusual(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return None


def _shortest(value: np.floating[Any], width: int) -> str:
    """The fewest digits that give the number back, with an exponent; not those halfway to a neighbour."""
    if (unusual := _unusual(float(value))) is not None:
        return unusual
    if width == 8 and abs(value) < _HIGHEST_PLAIN[width]:
        # Python writes the same here, and this is the fastest way.
        return repr(float(value))
    text = np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)
    if abs(value) > 1 and _halfway(value, text):
        # Whether a reader rounds such digits to this number depends on the reader: PostgreSQL avoids them.
        digits = 8 if width == 4 else 16
        while digits > 0:
            text = np.format_float_scientific(value, unique=False, precision=digits, trim="-", exp_digits=2)
            shorter = np.format_float_scientific(
                value, unique=False, precision=digits - 1, trim="-", exp_digits=2
            )
            if type(value)(shorter) != value or _halfway(value, shorter):
                return text
            digits -= 1
    return text


def _halfway(value: np.floating[Any], text: str) -> bool:
    """Whether the digits lie exactly between the number and the next one."""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent) - len(fraction)
    if power < 0:
        return False
    told = int(whole + fraction) * 10**power
    exact = int(value)
    limit = np.inf if told > exact else -np.inf
    neighbour = np.nextafter(value, type(value)(limit))
    return bool(np.isfinite(neighbour)) and told != exact and 2 * told == exact + int(neighbour)


def numeric_text(array: pa.Array) -> Field:
    """Plain digits with the full scale."""
    if not pa.types.is_decimal(array.type):
        return integer_text(array)
    scale = array.type.scale
    digits, negative = _unscaled_text(array)
    if scale < 0:
        digits = pc.if_else(
            pc.equal(digits, "0"), digits, pc.binary_join_element_wise(digits, "0" * -scale, "")
        )
    if scale > 0:
        shortest = pc.min(pc.binary_length(digits)).as_py()
        if shortest is not None and shortest <= scale:
            digits = pc.ascii_lpad(digits, scale + 1, "0")
        digits = pc.binary_replace_slice(digits, start=-scale, stop=-scale, replacement=".")
    if negative is not None:
        digits = pc.binary_join_element_wise(pc.if_else(negative, "-", ""), digits, "")
    return Varying(digits.cast(pa.binary()))


def _unscaled_text(array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """The digits without point and sign, and which are negative if any is."""
    small = _as_int64(array)
    if small is not None:
        negative: Mask = small < 0
        sized = pa.array(np.abs(small), mask=nulls(array) if array.null_count else None)
        return sized.cast(pa.string()), pa.array(negative) if negative.any() else None
    # The same bytes as a whole number: of those Arrow prints all digits.
    kind = pa.decimal256 if pa.types.is_decimal256(array.type) else pa.decimal128
    text = _reinterpreted(_wide(array), kind(array.type.precision, 0)).cast(pa.string())
    signs = pc.starts_with(text, "-")
    if not pc.any(signs).as_py():
        return text, None
    return pc.ascii_ltrim(text, "-"), signs


def _wide(array: pa.Array) -> pa.Array:
    if pa.types.is_decimal128(array.type) or pa.types.is_decimal256(array.type):
        return array
    return array.cast(pa.decimal128(array.type.precision, array.type.scale))


def _reinterpreted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(array), array.buffers(), offset=array.offset)


def _as_int64(array: pa.Array) -> Ints | None:
    """The unscaled values, 0 for nulls, if all of them fit."""
    array = _wide(array)
    if pa.types.is_decimal256(array.type):
        return None
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[
        array.offset : array.offset + len(array)
    ]
    low = words[:, 0].copy()  # of one row, ascontiguousarray would be a view that cannot be written
    if array.null_count:
        low[nulls(array)] = 0
    elif array.type.precision <= _INT64_DIGITS:
        return low
    high = words[:, 1]
    if array.null_count:
        high = np.where(nulls(array), 0, high)
    fits = bool((high == low >> 63).all()) and int(low.min(initial=0)) > -(1 << 63)
    return low if fits else None


def numeric_binary(array: pa.Array) -> Field:
    """Groups of four digits, each a 16-bit number, without those that are zero at either end."""
    if not pa.types.is_decimal(array.type):
        array = array.cast(pa.decimal128(20, 0))
    scale = max(array.type.scale, 0)
    small = _as_int64(array) if array.type.scale >= 0 else None
    if small is not None:
        negative: Mask = small < 0
        groups, before = _split(np.abs(small), scale)
    else:
        groups, before, negative = _split_text(array, scale)
    return _packed(groups, before, negative, scale, array)


def _split(values: Ints, scale: int) -> tuple[npt.NDArray[np.uint16], int]:
    """The groups of numbers with ``scale`` digits after the point, and how many groups are before it."""
    if scale <= _INT64_DIGITS:
        unit = 10**scale
        whole = values // unit
        rest = values - whole * unit
    else:
        whole, rest = np.zeros_like(values), values
    columns: list[Ints] = []
    while not columns or whole.any():
        higher = whole // _GROUP
        columns.append(whole - higher * _GROUP)
        whole = higher
    columns.reverse()
    before = len(columns)
    left = scale
    while left > 0:
        left -= 4
        if left > _INT64_DIGITS:
            columns.append(np.zeros_like(rest))
            continue
        if left < 0:
            columns.append(rest * 10**-left)
            break
        group = rest // 10**left
        rest = rest - group * 10**left
        columns.append(group)
    return np.stack([each.astype(np.uint16) for each in columns]), before


def _split_text(array: pa.Array, scale: int) -> tuple[npt.NDArray[np.uint16], int, Mask]:
    """The same for numbers of any size, from their digits."""
    text = numeric_text(array).values().cast(pa.string())
    negative: Mask = zeroed(pc.starts_with(text, "-").cast(pa.uint8()), np.bool_)
    digits = pc.replace_substring(pc.ascii_ltrim(pc.fill_null(text, "0"), "-"), ".", "")
    after = -(-scale // 4) * 4
    if after != scale:
        digits = pc.binary_join_element_wise(digits, "0" * (after - scale), "")
    longest = pc.max(pc.binary_length(digits)).as_py() or 4
    width = max(-(-longest // 4) * 4, after + 4)
    raw = pc.ascii_lpad(digits, width, "0").cast(pa.binary())
    flat = np.frombuffer(raw.buffers()[2], np.uint8)[: len(array) * width].reshape(len(array), width // 4, 4)
    groups = (flat - ord("0")).astype(np.uint16) @ np.array([1000, 100, 10, 1], np.uint16)
    return groups.T, (width - after) // 4, negative


def _packed(
    groups: npt.NDArray[np.uint16], before: int, negative: Mask, scale: int, array: pa.Array
) -> Varying:
    """``groups`` has a row for each group, most significant first."""
    width, count = groups.shape
    first, last = _used(groups)
    zero = first == width
    first[zero] = last[zero] = 0
    # The four numbers of the head stand right before the first group, so that each value is one run of cells.
    table = np.empty((count, width + 4), ">u2")
    table[:, 4:] = groups.T
    head = np.empty((count, 4), ">i2")
    head[:, 0] = last - first
    head[:, 1] = np.where(zero, 0, before - 1 - first)
    head[:, 2] = np.where(negative, _NEGATIVE, 0)
    head[:, 3] = scale
    lengths = last - first + 4
    starts = np.arange(0, table.size, width + 4) + first
    # Four cells at any place, as one number: all heads are written in one go.
    windows: npt.NDArray[np.uint64] = np.ndarray((table.size - 3,), np.uint64, table.data, strides=(2,))
    windows[starts] = head.view(np.uint64)[:, 0]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(starts - offsets[:-1], lengths)
    places += np.arange(len(places))
    kept = table.ravel().take(places)
    return Varying(varying(kept, offsets * np.int32(2), nulls(array) if array.null_count else None))


def _used(groups: npt.NDArray[np.uint16]) -> tuple[Ints, Ints]:
    """From which group to before which one the groups of each number are; all, if every one is zero."""
    width, count = groups.shape
    first, last = np.zeros(count, np.int64), np.full(count, width, np.int64)
    leading, trailing = np.ones(count, np.bool_), np.ones(count, np.bool_)
    for at in range(width):
        leading &= groups[at] == 0
        first += leading
        trailing &= groups[width - 1 - at] == 0
        last -= trailing
    return first, last


def number_binary(array: pa.Array, kind: pa.DataType, packed: str) -> Field:
    """Integers and floats, most significant byte first."""
    cast = array if array.type == kind else array.cast(kind)
    return field(cells_of(zeroed(cast, packed)), array)


def bool_binary(array: pa.Array) -> Field:
    return field(zeroed(array.cast(pa.uint8()), np.uint8)[:, None], array)


def all_null(count: int) -> Field:
    return Varying(pa.nulls(count, pa.binary()))


def empty(count: int) -> Fixed:
    cells: Cells = np.empty((count, 0), np.uint8)
    return Fixed(cells)

"""Floats as PostgreSQL prints them: the fewest digits that give the number back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.server.pgwire.encode import kernels
from penstock.server.pgwire.encode.fields import Field, Varying, content, nulls, varying
from penstock.server.pgwire.encode.numbers import zeroed

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.server.pgwire.encode.fields import Mask

_LOWEST_PLAIN = 1e-4
_HIGHEST_PLAIN = {4: 1e6, 8: 1e15}
"""Floats of this many bytes have an exponent from here on."""
_ARROWS_PLAIN = 1e10
"""From here on Arrow writes an exponent."""
_DIGITS = {4: 6, 8: 15}
_POWERS = {
    4: 10.0 ** np.arange(6, dtype=np.float32),
    8: 10.0 ** np.arange(7, dtype=np.float64),
}
_SAMPLE = 256
"""So many are looked at to see whether most are decimals of few digits, as prices are."""
_LONGEST = 20


def float_text(array: pa.Array, extra_digits: int) -> Field:
    width = 4 if pa.types.is_float32(array.type) else 8
    values = zeroed(array, np.float32 if width == 4 else np.float64)
    if extra_digits <= 0:
        # PostgreSQL's own older way; nobody has it for large results.
        digits = max(_DIGITS[width] + extra_digits, 1)
        texts = [None if missing else _rounded(value, digits) for value, missing in _pairs(values, array)]
        return Varying(pa.array(texts, pa.binary()))
    missing = nulls(array) if array.null_count else None
    return Varying(_few_digits(values, width, missing) or _many_digits(values, width, missing))


def _few_digits(values: npt.NDArray[Any], width: int, missing: Mask | None) -> pa.Array | None:
    """None if it would not pay."""
    count = len(values)
    numbers, places = np.empty(count, np.int64), np.empty(count, np.uint8)
    limits = (_POWERS[width], _LOWEST_PLAIN, _HIGHEST_PLAIN[width])
    sample = values[:_SAMPLE]
    if 2 * kernels.plain(sample, *limits, numbers, places) < len(sample):
        return None
    kernels.plain(values, *limits, numbers, places)
    data, begins = content(_many_digits(values[places == kernels.NOT_PLAIN], width))
    offsets, out = np.empty(count + 1, np.int32), np.empty(count * _LONGEST + len(data), np.uint8)
    kernels.decimals(values, numbers, places, begins, data, offsets, out)
    return varying(out, offsets, missing)


def _many_digits(values: npt.NDArray[Any], width: int, missing: Mask | None = None) -> pa.Array:
    text = pa.array(values, mask=missing).cast(pa.string())
    size = np.abs(values)
    plain = (size >= _LOWEST_PLAIN) & (size < min(_HIGHEST_PLAIN[width], _ARROWS_PLAIN)) | (size == 0)
    if not plain.all():
        whole = ~plain & (size < _HIGHEST_PLAIN[width]) & (np.floor(size) == size)
        text = _replaced(text, whole, pa.array(values[whole].astype(np.int64)).cast(pa.string()))
        odd = ~plain & ~whole
        text = _replaced(text, odd, pa.array([_shortest(value, width) for value in values[odd]], pa.string()))
    return text.cast(pa.binary())


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

"""PostgreSQL's texts as Arrow arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import time
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.errors import SqlError

_INTERVAL = re.compile(
    r"(?:(?P<years>[+-]?\d+) years? ?)?(?:(?P<months>[+-]?\d+) mons? ?)?(?:(?P<days>[+-]?\d+) days? ?)?"
    r"(?:(?P<sign>[+-])?(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?)?"
)
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def array(values: Sequence[bytes | None], type: pa.DataType) -> Any:  # noqa: A002
    """A column. Values that the type cannot hold raise `SqlError`."""
    texts = pa.array(values, pa.binary()).cast(pa.string())
    try:
        return _converted(texts, type)
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        ValueError,
        OverflowError,
        InvalidOperation,
    ) as error:
        raise SqlError(
            f"a value does not fit into {type}: {str(error).splitlines()[0]}",
            hint="cast the column to text",
            sqlstate="22003",
        ) from error


def _converted(texts: Any, type: pa.DataType) -> Any:  # noqa: A002
    for fits, convert in _CONVERSIONS:
        if fits(type):
            return convert(texts, type)
    return texts.cast(type)


def _each(make: Callable[[str], object]) -> Callable[[Any, pa.DataType], Any]:
    def convert(texts: Any, type: pa.DataType) -> Any:  # noqa: A002
        return pa.array([None if text is None else make(text) for text in texts.to_pylist()], type)

    return convert


def _decimals(texts: Any, type: pa.DataType) -> Any:  # noqa: A002
    """More digits behind the point than the type has are rounded, as a cast to it would."""
    step = Decimal(1).scaleb(-type.scale)
    with localcontext(prec=80):
        rounded = [None if text is None else Decimal(text).quantize(step) for text in texts.to_pylist()]
    return pa.array(rounded, type)


def _lists(texts: Any, type: pa.DataType) -> Any:  # noqa: A002
    offsets: list[int | None] = []
    elements: list[str | None] = []
    for text in texts.to_pylist():
        if text is None:
            offsets.append(None)
            continue
        offsets.append(len(elements))
        elements.extend(_elements(text))
    offsets.append(len(elements))
    values = _converted(pa.array(elements, pa.string()), type.value_type)
    made = pa.LargeListArray if kinds.is_large_list(type) else pa.ListArray
    numbers = pa.array(offsets, pa.int64() if kinds.is_large_list(type) else pa.int32())
    return made.from_arrays(numbers, values).cast(type)


def _elements(text: str) -> list[str | None]:
    """``{1,NULL,"a b"}``; also PostgreSQL's vectors of numbers, ``1 2 3``."""
    if not text.startswith(("{", "[")):
        return list(text.split())
    inner = text[text.index("{") + 1 : -1]
    if inner.startswith("{"):
        raise ValueError("an array of arrays")
    found: list[str | None] = []
    for match in _ELEMENT.finditer(inner):
        if match[1] is not None:
            found.append(_ESCAPE.sub(r"\1", match[1]))
        else:
            found.append(None if match[2].upper() == "NULL" else match[2])
    return found


def _interval(text: str) -> tuple[int, int, int]:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError(f"interval {text}")
    part = {
        name: int(value)
        for name, value in match.groupdict().items()
        if value and name.isalpha() and name != "sign"
    }
    fraction = match["fraction"] or ""
    clock = (part.get("hours", 0) * 60 + part.get("minutes", 0)) * 60 + part.get("seconds", 0)
    nanoseconds = clock * 1_000_000_000 + (int(fraction.ljust(9, "0")) if fraction else 0)
    months = part.get("years", 0) * 12 + part.get("months", 0)
    return months, part.get("days", 0), -nanoseconds if match["sign"] == "-" else nanoseconds


def _durations(texts: Any, type: pa.DataType) -> Any:  # noqa: A002
    def microseconds(text: str) -> int:
        months, days, nanoseconds = _interval(text)
        return (months * 30 + days) * 86_400_000_000 + nanoseconds // 1000

    return _each(microseconds)(texts, pa.int64()).cast(pa.duration("us")).cast(type)


def _extension(texts: Any, type: pa.DataType) -> Any:  # noqa: A002
    return type.wrap_array(_converted(texts, type.storage_type))


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...] = (
    (lambda type_: isinstance(type_, pa.BaseExtensionType), _extension),
    (kinds.is_boolean, lambda texts, _: pc.equal(texts, "t")),
    (kinds.is_decimal, _decimals),
    (lambda type_: kinds.is_list(type_) or kinds.is_large_list(type_), _lists),
    (lambda type_: type_ == pa.binary(16), _each(lambda text: bytes.fromhex(text.replace("-", "")))),
    (
        lambda type_: kinds.is_binary(type_) or kinds.is_large_binary(type_),
        _each(lambda text: bytes.fromhex(text[2:])),
    ),
    (kinds.is_time, _each(time.fromisoformat)),
    (lambda type_: type_ == pa.month_day_nano_interval(), _each(_interval)),
    (kinds.is_duration, _durations),
)

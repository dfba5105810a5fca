"""Values of parameters written into the statement, where there are many.

Each value that is handed to Spark beside the text costs a call to the JVM of about a millisecond, and an
array one for each of its elements. Written into the text, thousands cost no more than that text does.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.sql.rules.core import text as literal

MANY = 64
"""With more parameters than this, short values are written into the text."""
_LONG = 1_000
"""Longer texts are handed over beside it: Spark's parser is slow over them."""
_SHORT_ARRAY = 16
_KIND = r"(SMALLINT|INT|BIGINT|STRING|DECIMAL\(\d+,\d+\))"
# The text is of our own making: names stand in backquotes, texts in single quotes with escapes. Elements of
# lists are casts in small letters.
_TOKEN = re.compile(
    rf"'(?:[^'\\]|\\.|'')*'|`[^`]*`|cast\((CAST\()?:(p\d+) AS {_KIND}\)(?(1) AS {_KIND}\))|:(p\d+)\b",
    re.DOTALL,
)
_INTEGERS = {"SMALLINT": (15, "S"), "INT": (31, ""), "BIGINT": (63, "L")}


def inlined(text: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The statement with what can be written into it, and the values that are left.

    ``values`` are those of ``:p1``, ``:p2`` …: texts, numbers, and lists of these.
    """
    many = len(values) > MANY
    written: dict[str, str] = {}
    left: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, (list, tuple)) and _as_json(value):
            written[name], left[name] = f"from_json(:{name}, 'array<string>')", json.dumps(_texts(value))
        elif many and (spelled := _spelled(value)) is not None:
            written[name] = spelled
        else:
            left[name] = value
    if not written:
        return text, left

    def replaced(hit: re.Match[str]) -> str:
        if hit[5]:
            return written.get(hit[5], hit[0])
        if hit[2] not in written:
            return hit[0]
        first, last = hit[3], hit[4] or hit[3]
        bare = _bare(values[hit[2]], first, last)
        return bare or hit[0].replace(f":{hit[2]}", written[hit[2]], 1)

    return _TOKEN.sub(replaced, text), left


def _bare(value: Any, first: str, last: str) -> str | None:
    """A value cast to one type and then to another, said shorter: less is read sooner."""
    if isinstance(value, int) and not isinstance(value, bool) and first in _INTEGERS and last in _INTEGERS:
        bits, suffix = min(_INTEGERS[first], _INTEGERS[last])[0], _INTEGERS[last][1]
        if 0 <= value < 1 << bits:
            return f"{value}{suffix}"
        return f"(-{-value}{suffix})" if -(1 << bits) < value < 0 else None
    if isinstance(value, str) and first == last == "STRING":
        return literal(value)
    if isinstance(value, str) and first.startswith("DECIMAL") and last.startswith("DECIMAL"):
        (digits, scale), (more, longer) = _sizes(first), _sizes(last)
        # Only where nothing is rounded on the way.
        if longer >= scale and more - longer >= digits - scale:
            return f"CAST({literal(value)} AS {last})"
    return None


def _sizes(kind: str) -> tuple[int, int]:
    digits, scale = kind[len("DECIMAL(") : -1].split(",")
    return int(digits), int(scale)


def _as_json(values: Sequence[Any]) -> bool:
    """Whether an array goes as one text. The statement casts its elements, as it casts all values."""
    long = len(values) > _SHORT_ARRAY or None in values
    return long and not any(isinstance(each, (bytearray, list, tuple)) for each in values)


def _texts(values: Sequence[Any]) -> list[str | None]:
    return [None if each is None else _text(each) for each in values]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _spelled(value: Any) -> str | None:
    """A literal of Spark's, of the type that the value has when it is handed over; None if it has none."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        # The least number is none that can be spelled: its minus is an operator.
        return f"({value})" if value > -(1 << 63) else f"CAST('{value}' AS BIGINT)"
    if isinstance(value, float):
        return f"({value!r}D)" if math.isfinite(value) else f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, str) and len(value) <= _LONG:
        return literal(value)
    if isinstance(value, (bytes, bytearray)) and len(value) <= _LONG:
        return f"X'{value.hex()}'"
    return None

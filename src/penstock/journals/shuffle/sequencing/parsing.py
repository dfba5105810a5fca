"""Values of JSON that must be as they were written: whatever is not is a `BadState` that says what it is."""

from __future__ import annotations

from typing import Any

from penstock.core.codec import UPGRADE
from penstock.errors import BadState
from penstock.journals.format import fragments

LARGEST_PRODUCER = (1 << 48) - 1
LARGEST_CLOCK = (1 << 64) - 1
LARGEST_OFFSET = fragments.LARGEST_OFFSET

_FAR = 1e18


def bad(why: str) -> BadState:
    """The error about something that is not as Penstock wrote it."""
    return BadState(
        f"how far journals were read cannot be known: {why}",
        hint="it is not as Penstock wrote it: restore the stream's storage and store from a backup",
    )


def versioned(found: Any, what: str, version: int, keys: set[str]) -> dict[str, Any]:
    """``found``, if it has this version, and these keys beside."""
    if not isinstance(found, dict):
        raise bad(f"{what} is {_shown(found)}, not an object")
    if type(found.get("version")) is not int or found["version"] != version:
        raise BadState(
            f"{what} has version {_shown(found.get('version'))}, and this Penstock knows {version}",
            hint=UPGRADE,
        )
    if found.keys() != keys | {"version"}:
        wrong = ", ".join(sorted(map(repr, found.keys() ^ (keys | {"version"}))))
        raise bad(f"{what} lacks these keys, or must not have them: {wrong[:200]}")
    return found


def integer(value: Any, what: str, most: int, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= most:
        raise bad(f"{what} is {_shown(value)}, not an integer from {least} to {most}")
    return value


def number(value: Any, what: str) -> float:
    if type(value) not in (int, float) or not -_FAR < value < _FAR:
        raise bad(f"{what} is {_shown(value)}, not a finite number")
    return float(value)


def text(value: Any, what: str) -> str:
    if type(value) is not str:
        raise bad(f"{what} is {_shown(value)}, not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise bad(f"{what} has half of a character: {_shown(value)}") from None
    return value


def listed(value: Any, what: str, length: int | None = None) -> list[Any]:
    if type(value) is not list:
        raise bad(f"{what} is {_shown(value)}, not a list")
    if length is not None and len(value) != length:
        raise bad(f"{what} has {len(value)} elements, not {length}")
    return value


def _shown(value: Any) -> str:
    if type(value) is int and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    shown = ascii(value) if isinstance(value, str | int | float | None) else f"of type {type(value).__name__}"
    return shown if len(shown) <= 60 else f"{shown[:60]}…"

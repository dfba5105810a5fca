"""The states of parts, as text that outlives the program that wrote it.

A state is None, a bool, an int, a float, a str, bytes, a date, a datetime, a Decimal, a UUID, or a list,
tuple or dictionary with str keys of such values; a tuple comes back as a list, and the zone of a datetime as
its distance from UTC. It is written as JSON with a version in front. What JSON does not have is tagged:
``{"$bytes": "…"}``. Nothing that is read can run code.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from penstock.core.codec import UPGRADE
from penstock.errors import BadState

State: TypeAlias = Any
"""A value of the types that a state may have; see the module."""

_VERSION = 1
_TAG = "$"
_DEEPEST = 64

_WRITE: dict[type, tuple[str, Callable[[Any], str]]] = {
    bytes: ("bytes", lambda value: base64.b64encode(value).decode("ascii")),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    Decimal: ("decimal", str),
    UUID: ("uuid", str),
}
_READ: dict[str, Callable[[str], Any]] = {
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
    "float": float,
}


def encode(part: str, state: State) -> str:
    """The state of ``part`` as text; `BadState` names the part, and where in the state what stands."""
    body = _out(part, state, "state", 0)
    try:
        return f"{_VERSION}:{json.dumps(body, separators=(',', ':'), allow_nan=False)}"
    except ValueError as error:
        raise BadState(
            f"the state of part {part!r} cannot be encoded: {error}",
            left="the epoch was not committed",
            hint="keep a number with thousands of digits as text",
        ) from error


def decode(part: str, text: str) -> State:
    """The state that `encode` wrote."""
    version, colon, body = text.partition(":")
    if not colon or version != str(_VERSION):
        raise BadState(
            f"the state of part {part!r} has version {version[:20]!r}, and this version of Penstock knows "
            f"{_VERSION}",
            hint=UPGRADE,
        )
    try:
        return _in(json.loads(body))
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise BadState(
            f"the state of part {part!r} cannot be read: {error}",
            hint="it is not as Penstock wrote it: restore the stream's storage and store from a backup",
        ) from error


def _out(part: str, value: Any, where: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise BadState(
            f"the state of part {part!r} is nested more than {_DEEPEST} deep at {where}",
            left="the epoch was not committed",
            hint="keep the state flat; a value that holds itself has no end",
        )
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {f"{_TAG}float": str(value)}
    if kind in _WRITE:
        tag, write = _WRITE[kind]
        return {_TAG + tag: write(value)}
    if kind in (list, tuple):
        return [_out(part, each, f"{where}[{n}]", depth + 1) for n, each in enumerate(value)]
    if isinstance(value, Mapping):
        return _pairs(part, value, where, depth)
    raise BadState(
        f"the state of part {part!r} cannot be encoded: {where} is of type {_name(kind)}",
        left="the epoch was not committed",
        hint="use numbers, text, bytes, dates, Decimal, UUID, and lists and dictionaries of them",
    )


def _pairs(part: str, value: Mapping[Any, Any], where: str, depth: int) -> dict[str, Any]:
    body = {}
    for key, each in value.items():
        if type(key) is not str:
            raise BadState(
                f"the state of part {part!r} cannot be encoded: {where} has a key of type {_name(type(key))}",
                left="the epoch was not committed",
                hint="keys are text: use str(key), or a list of pairs",
            )
        # A key that looks like a tag is escaped by one more sign.
        name = _TAG + key if key.startswith(_TAG) else key
        body[name] = _out(part, each, f"{where}[{key!r}]", depth + 1)
    return body


def _in(value: Any) -> Any:
    if isinstance(value, list):
        return [_in(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (key, text), *_ = value.items()
        if _is_tag(key):
            return _tagged(key[1:], text)
    return {_untagged(key): _in(each) for key, each in value.items()}


def _is_tag(key: str) -> bool:
    return key.startswith(_TAG) and not key.startswith(_TAG * 2)


def _tagged(tag: str, text: Any) -> Any:
    if tag not in _READ or not isinstance(text, str):
        raise ValueError(f"it has no value of the kind {tag[:20]!r}")
    return _READ[tag](text)


def _untagged(key: str) -> str:
    if _is_tag(key):
        raise ValueError(f"{key[:20]!r} stands beside other keys")
    return key[1:] if key.startswith(_TAG) else key


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

"""Values of ours as JSON values: the one way from a view to what commands and HTTP print."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.core.ranges import Range

_JSON = str | bool | int | float | None


def _scalar(value: Any) -> Any:
    return value if isinstance(value, _JSON) else str(value)


def plain(value: Any, scalar: Callable[[Any], Any] = _scalar) -> Any:
    """Dataclasses become objects; ``scalar`` says what becomes of a value that has no others in it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Range | Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), scalar) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item, scalar) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [plain(item, scalar) for item in value]
    return scalar(value)

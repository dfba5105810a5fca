"""Resources: values that transforms share and that are not rows of a partition."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from penstock.errors import DefinitionError


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A lookup or a piece of configuration, loaded once per instance and broadcast once.

    A transform that needs it lists it in ``reads`` and takes a parameter of its name. ``load`` makes
    the value; without it, a dataset factory or another transform (which lists it in ``writes``)
    provides one. Resources are not checkpointed. Their values are part of the fingerprint of the
    stages that read them; for a value that is not plain data, give a ``version`` and change it
    when the value changes.
    """

    name: str
    load: Callable[[], Any] | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise DefinitionError(
                f"{self.name!r} is not a resource name: it must be usable as a parameter name"
            )

    def __str__(self) -> str:
        return self.name


# Their repr says all there is to them, in every process.
_SPELLED_OUT = (
    bool | int | float | complex | str | bytes | Decimal | Fraction | range | UUID | PurePath
    | datetime | date | time | timedelta | timezone | ZoneInfo
)  # fmt: skip


def value_digest(value: Any) -> str | None:
    """A stable hash of plain data, or None for a value whose content cannot be seen from outside."""
    digest = hashlib.sha256()
    return digest.hexdigest()[:16] if _feed(digest, value) else None


def _feed(digest: Any, value: Any) -> bool:
    """Feed a value into the digest; False if it is not plain data."""
    digest.update(type(value).__name__.encode() + b"\0")
    if value is None or isinstance(value, _SPELLED_OUT):
        digest.update(repr(value).encode() + b"\0")
        return True
    if isinstance(value, re.Pattern):
        return _feed(digest, (value.pattern, value.flags))
    if isinstance(value, Enum):
        return _feed(digest, value.name) and _feed(digest, value.value)
    if isinstance(value, list | tuple | set | frozenset | dict):
        digest.update(b"%d\0" % len(value))
    if isinstance(value, list | tuple):
        return all(_feed(digest, item) for item in value)
    if isinstance(value, set | frozenset):
        # Neither the order of a set nor the text of a set inside it is the same in two processes.
        items = [value_digest(item) for item in value]
        return None not in items and _feed(digest, sorted(str(item) for item in items))
    if isinstance(value, dict):
        return all(_feed(digest, key) and _feed(digest, item) for key, item in value.items())
    if is_dataclass(value) and not isinstance(value, type):
        return all(_feed(digest, f.name) and _feed(digest, getattr(value, f.name)) for f in fields(value))
    if type(value).__module__.startswith("pyarrow"):
        with suppress(TypeError, pickle.PicklingError):
            digest.update(pickle.dumps(value, protocol=4))
            return True
    return False

"""Resources: values that transforms share and that are not rows of a partition.

`Handles` gives them to Arrow functions on executors.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.spark.session import broadcast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

import hashlib
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
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


Named = tuple[str, Any]


class Handles:
    """One broadcast for each resource value, kept until nobody holds the value any more.

    A value that was never held is shared by all claims, and its broadcast stays.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._lock = threading.Lock()
        self._made: dict[tuple[str, int], tuple[Any, Any]] = {}
        self._holders: Counter[tuple[str, int]] = Counter()

    def get(self, name: str, value: Any) -> Any:
        from pyspark.sql import DataFrame

        if isinstance(value, DataFrame):
            raise UsageError(
                f"resource {name} is a DataFrame, which an Arrow transform cannot use",
                hint="make it a plain value or a pyarrow Table, or use it in a @transform",
            )
        key = (name, id(value))
        with self._lock:
            if key not in self._made:
                # The value is kept beside its handle, so that its id cannot be given to another one.
                self._made[key] = (broadcast(self._spark, value), value)
            return self._made[key][0]

    def hold(self, values: Iterable[Named]) -> None:
        """Say that these values are in use; the caller keeps them alive until it releases them."""
        with self._lock:
            self._holders.update((name, id(value)) for name, value in values)

    def release(self, values: Iterable[Named]) -> None:
        """Give back what `hold` took. Broadcasts that nobody needs any more leave the executors."""
        dropped = []
        with self._lock:
            for name, value in values:
                key = (name, id(value))
                self._holders[key] -= 1
                if self._holders[key] <= 0:
                    del self._holders[key]
                    dropped.append(self._made.pop(key, None))
        for made in dropped:
            # Over Connect there is no broadcast; elsewhere the session may be gone, and with it this one.
            pickled = getattr(made[0], "pickled", None) if made else None
            if pickled is not None:
                with suppress(Exception):
                    pickled.destroy()


def own_values(resources: Iterable[Mapping[str, Any]], shared: Iterable[Mapping[str, Any]]) -> list[Named]:
    """The values of ``resources`` that are not those of ``shared``, each once."""
    found: dict[tuple[str, int], Named] = {}
    for mine, others in zip(resources, shared, strict=True):
        for name, value in mine.items():
            if name not in others or others[name] is not value:
                found[name, id(value)] = (name, value)
    return list(found.values())

"""Handles: resources as Arrow functions on executors find them."""

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

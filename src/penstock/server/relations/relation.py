"""A relation that SQL can name, who provides those of the system, and temporary views that stand for some."""

from __future__ import annotations

import hashlib
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.server.base import User

Key = tuple[str, str]
"""Schema and name."""
Binder = Callable[["SparkSession", str], str]
"""Gives the name that a relation has in Spark SQL, for a query in a session."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view as it is now. ``kind`` is ``table``, ``view`` or ``system``."""

    schema: str
    name: str
    kind: str
    columns: pa.Schema
    spark_columns: Mapping[str, str]
    """Name and Spark type of each column, as DDL writes it."""
    binder: Binder = field(repr=False, compare=False)
    bindings: Bindings = field(repr=False, compare=False)
    doubt: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """To be called when its files could not be read: they may have other columns than it has."""

    def bind(self, spark: SparkSession, query: str) -> str:
        """What to write in Spark SQL for this relation now. The same for every use in one query."""
        return self.binder(spark, query)

    def release(self, spark: SparkSession, query: str) -> None:
        """Let go of everything that was bound for this query. Harmless when repeated."""
        self.bindings.release(spark, query)


class Bindings:
    """The temporary views of queries that run. What is bound twice in one query is the same rows twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, dict[Key, str]] = {}

    def bind(self, query: str, key: Key, frame: Callable[[], DataFrame]) -> str:
        """The temporary view of this query for ``key``, made of ``frame`` when it is asked for first."""
        with self._lock:
            if found := self._names.get(query, {}).get(key):
                return found
        name = _view_name(query, key)
        frame().createOrReplaceTempView(name)
        with self._lock:
            self._names.setdefault(query, {})[key] = name
        return name

    def release(self, spark: SparkSession, query: str) -> None:
        with self._lock:
            names = self._names.pop(query, {})
        for name in names.values():
            # A session that is gone has no views either.
            with suppress(Exception):
                spark.catalog.dropTempView(name)


def _view_name(query: str, key: Key) -> str:
    # Spark takes letters, digits and underscores only; the digest keeps apart what looks the same then.
    digest = hashlib.sha256("\0".join((query, *key)).encode()).hexdigest()[:12]
    return f"penstock_{_plain(key[0])}_{_plain(key[1])}_{digest}"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())[:40]


class Provider(ABC):
    """A schema of system tables. Called from any thread, and asked anew for every query."""

    schema: str

    @abstractmethod
    def tables(self) -> Mapping[str, pa.Schema]:
        """The tables by name. Must not block."""

    @abstractmethod
    def rows(self, name: str, user: User) -> pa.Table:
        """The rows of a table as they are now, as far as this user may see them, with exactly its schema."""

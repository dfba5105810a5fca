"""A table or view that is kept: what it was made of, the columns that it has, and what is wrong with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import SqlError
from penstock.server.relations import columns
from penstock.server.relations.naming import shown
from penstock.server.relations.relation import Key
from penstock.server.relations.spec import Spec, ViewSpec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table or view that is kept. With a ``problem`` it cannot be read, and that says why."""

    key: Key
    kind: str
    statement: str
    """Its name in the catalog; empty for one of the configuration."""
    make: Callable[[], Spec]
    spec: Spec | None = None
    columns: StructType | None = None
    arrow: pa.Schema = field(default_factory=lambda: pa.schema([]))
    types: Mapping[str, str] = field(default_factory=dict)
    """The columns again, as Arrow and as DDL have them."""
    spark_name: str | None = None
    """What all sessions of Spark know it by; None for one that is made anew for each query."""
    seen: str = ""
    """What its files said about their columns; empty where these do not depend on them."""
    problem: SqlError | None = None
    tried: float = 0.0


def covers(latest: TableEntry, entry: TableEntry) -> bool:
    """Whether all columns of an entry are there as they were."""
    return latest is entry or all(latest.types.get(name) == kind for name, kind in entry.types.items())


def shaped(entry: TableEntry, schema: StructType | None) -> TableEntry:
    if schema is None:
        return replace(entry, columns=None, arrow=pa.schema([]), types={})
    return replace(entry, columns=schema, arrow=columns.arrow(schema), types=columns.ddl_types(schema))


def tell(entry: TableEntry, before: SqlError | None) -> None:
    """Log a problem once, however often it is met again."""
    if entry.problem is not None and (before is None or before.what != entry.problem.what):
        _log.warning("%s: %s", shown(entry.key), entry.problem.what)


def broken(entry: TableEntry) -> SqlError:
    """The error of whoever asks for an entry with a problem."""
    problem = entry.problem
    assert problem is not None
    return SqlError(problem.what, left=problem.left, hint=problem.hint, sqlstate=problem.sqlstate)


def dependents(entries: Sequence[TableEntry], key: Key) -> Iterator[TableEntry]:
    """Views that refer to ``key`` directly."""
    for entry in entries:
        if isinstance(entry.spec, ViewSpec) and key in entry.spec.needs:
            yield entry

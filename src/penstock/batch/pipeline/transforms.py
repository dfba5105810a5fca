"""Transforms: functions over tables that say which fields they read and write."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Literal

from penstock.batch.pipeline.resources import Resource
from penstock.errors import DefinitionError
from penstock.types.tables import Field, Table, TableMeta

Form = Literal["frame", "arrow"]
Touched = Field | Resource | type[Table] | Any


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after what pause, a transform is tried again after a transient error.

    Transient are `TransientError`, `ConnectionError`, `TimeoutError` and what ``on`` adds. Pauses
    grow exponentially from ``first`` seconds, each with up to half of itself added at random, so
    that many tasks do not come back at the same moment.
    """

    times: int = 3
    first: float = 0.1
    on: type[Exception] | tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if self.times < 0 or self.first < 0:
            raise DefinitionError(f"{self} is not possible: neither number can be negative")


_THREE_TIMES = Retry()


class Transform:
    """A function and its declaration. Calling it calls the function, so it can be tested alone."""

    def __init__(
        self,
        function: Callable[..., Any],
        form: Form,
        reads: Iterable[Touched],
        writes: Iterable[Touched],
        drops: Iterable[type[Table]],
        retry: Retry,
        name: str | None,
    ) -> None:
        update_wrapper(self, function)
        code = inspect.unwrap(function).__code__
        self.function = function
        self.form = form
        self.retry = retry
        self.name = name or function.__name__
        self.location = f"{code.co_filename}:{code.co_firstlineno}"
        self.reads = self._checked("reads", reads)
        self.writes = self._checked("writes", writes)
        self.drops = frozenset(self._checked_table(t).__table_name__ for t in drops)
        self.parameters = tuple(inspect.signature(function).parameters)
        if not (self.writes or self.drops):
            raise self.error(DefinitionError, "writes nothing", hint="give writes=[…] or drops=…")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def __repr__(self) -> str:
        return f"<transform {self.name}>"

    def error(self, kind: type[DefinitionError], what: str, hint: str | None = None) -> DefinitionError:
        """An error about this transform that begins with its source line."""
        return kind(f"{self.location}: transform {self.name} {what}", hint=hint)

    def _checked(self, argument: str, items: Iterable[Touched]) -> tuple[Touched, ...]:
        for item in items:
            if not isinstance(item, Field | Resource | TableMeta):
                raise self.error(
                    DefinitionError,
                    f"has {item!r} in {argument}",
                    hint="list fields (Trades.price), whole tables (Trades) or resources",
                )
        return tuple(items)

    def _checked_table(self, item: Any) -> TableMeta:
        if not isinstance(item, TableMeta):
            raise self.error(DefinitionError, f"has {item!r} in drops", hint="name a table class there")
        return item


def transform(
    *,
    reads: Touched | Iterable[Touched] = (),
    writes: Touched | Iterable[Touched] = (),
    drops: type[Table] | Iterable[type[Table]] = (),
    retry: Retry = _THREE_TIMES,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Transform]:
    """Declare a function from DataFrames to a DataFrame.

    The function takes one parameter for each table and resource that it touches, named like it. It
    returns the DataFrame of the table that it writes: the one it was given with columns added or
    changed, or, for a table that does not exist yet, a new one. A function that writes several
    tables returns a dictionary by table name. One that removes rows says so with ``drops``; every
    other one must keep them all.
    """
    return lambda function: Transform(
        function, "frame", _many(reads), _many(writes), _many(drops), retry, name
    )


def arrow_transform(
    *,
    reads: Touched | Iterable[Touched] = (),
    writes: Touched | Iterable[Touched] = (),
    drops: type[Table] | Iterable[type[Table]] = (),
    retry: Retry = _THREE_TIMES,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Transform]:
    """Declare a function from an Arrow record batch to a record batch, run in Spark's Python workers.

    It touches one table, or reads one and creates another. The batch holds the declared fields
    only. The function returns a batch with the written fields (others are ignored if they are
    unchanged), in the same row order. With ``drops``, the batch also has a column ``_row``: filter
    it along with the rest, so that the other fields of the row can follow.
    """
    return lambda function: Transform(
        function, "arrow", _many(reads), _many(writes), _many(drops), retry, name
    )


def _many(items: Any) -> tuple[Any, ...]:
    if isinstance(items, Field | Resource | TableMeta | str):
        return (items,)
    return tuple(items)

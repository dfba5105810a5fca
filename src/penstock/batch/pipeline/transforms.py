"""Transforms: functions over tables that say which fields they read and write."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Literal

from penstock.batch.pipeline.resources import Resource
from penstock.errors import DefinitionError
from penstock.types.tables import Field, Table, TableMeta

Form = Literal["frame", "arrow"]
Touched = Field | Resource | type[Table] | Any


class Division(enum.Enum):
    """How rows are cut for a transform, where it is not by keys."""

    EVERYTHING = "everything"
    PARTITION = "partition"

    def __repr__(self) -> str:
        return f"penstock.{self.value}"


everything = Division.EVERYTHING
"""For ``by``: the transform is given all rows at once."""
partition = Division.PARTITION
"""For ``by``: the transform is given one partition at a time, and what it makes of each is wanted."""

# To a type checker a field is what its annotation says: `Trades.account` is an int there.
By = Division | Field | Iterable[Field] | Mapping[type[Table], Field | Iterable[Field]] | Any
Keys = Mapping[str, tuple[Field, ...]]


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
        by: By | None = None,
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
        self.by = self._keys(by)
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

    def _keys(self, by: Any) -> Division | Keys | None:
        """The key that ``by`` declares, by table: as many fields of each, of the same types in order."""
        if by is None or isinstance(by, Division):
            return by
        hint = (
            "name fields (by=[Trades.account]), the fields of each table (by={Trades: Trades.account, …}), "
        )
        hint += "penstock.everything or penstock.partition"
        try:
            given = list(by.values()) if isinstance(by, Mapping) else [by]
            fields = [f for some in given for f in ((some,) if isinstance(some, Field) else tuple(some))]
        except TypeError:
            fields = []
        if not fields or not all(isinstance(f, Field) for f in fields):
            raise self.error(DefinitionError, f"has by={by!r}", hint=hint)
        keys: dict[str, tuple[Field, ...]] = {}
        for each in fields:
            keys[each.table] = (*keys.get(each.table, ()), each)
        named = {t.__table_name__ for t in by} if isinstance(by, Mapping) else keys.keys()
        kinds = {tuple(f.type for f in some) for some in keys.values()}
        if keys.keys() != named or len({len(kind) for kind in kinds}) > 1:
            raise self.error(DefinitionError, f"has by={by!r}", hint="name as many fields of each table")
        if len(kinds) > 1:
            shown = " and ".join(", ".join(f"{f!r}" for f in some) for some in keys.values())
            raise self.error(
                DefinitionError, f"has a key of different types: {shown}", hint="cast one of them first"
            )
        return keys

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
    by: By | None = None,
) -> Callable[[Callable[..., Any]], Transform]:
    """Declare a function from DataFrames to a DataFrame.

    The function takes one parameter for each table and resource that it touches, named like it. It
    returns the DataFrame of the table that it writes: the one it was given with columns added or
    changed, or, for a table that does not exist yet, a new one. A function that writes several
    tables returns a dictionary by table name. One that removes rows says so with ``drops``; every
    other one must keep them all.

    The function means what its PySpark means over all rows, also where it groups, joins or sorts:
    Spark's plan shows how rows have to be cut for that. ``by`` says it where the plan cannot be had,
    and is compared with the plan where it can: fields whose equal values belong together
    (``by=[Trades.account]``, of several tables ``by={Trades: Trades.account, Accounts: Accounts.id}``),
    ``penstock.everything`` for all rows at once, or ``penstock.partition`` for partial results, one for
    each partition.
    """
    return lambda function: Transform(
        function, "frame", _many(reads), _many(writes), _many(drops), retry, name, by
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

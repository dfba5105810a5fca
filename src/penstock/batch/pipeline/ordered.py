"""The ``order_by`` of a pipeline: which outputs are sorted, and by what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import DefinitionError, UnknownField
from penstock.types.order import Order, SortColumn, can_be_sorted
from penstock.types.tables import Descending, Field, Table, TableMeta

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.batch.pipeline.pipeline import Pipeline

OrderBy: TypeAlias = Any
"""A field, several, or those of each table. Type checkers take a field for a value of its annotation."""

_HOW = (
    "write order_by=[TABLE.field, TABLE.other.desc()], or {TABLE: [TABLE.field]} for each of several outputs"
)


def orders_of(pipeline: Pipeline, given: Any) -> dict[str, Order]:
    """The order of each output that is sorted. Raises a `DefinitionError` for one that cannot be."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if len(pipeline.outputs) != 1:
            raise pipeline.error(
                DefinitionError, f"has {len(pipeline.outputs)} outputs and one order_by", hint=_HOW
            )
        given = {pipeline.outputs[0]: given}
    return {table.__table_name__: _order(pipeline, table, some) for table, some in _checked(pipeline, given)}


def _checked(pipeline: Pipeline, given: Mapping[Any, Any]) -> Iterable[tuple[type[Table], Any]]:
    outputs = {table.__table_name__: table for table in pipeline.outputs}
    for table, some in given.items():
        if not isinstance(table, TableMeta) or outputs.get(table.__table_name__) is None:
            raise pipeline.error(
                DefinitionError,
                f"has an order_by for {table!r}, which is none of its outputs",
                hint=f"its outputs: {', '.join(outputs)}",
            )
        yield outputs[table.__table_name__], some


def _order(pipeline: Pipeline, table: type[Table], given: Any) -> Order:
    fields = [given] if isinstance(given, Field | Descending) else given
    if not isinstance(fields, Iterable) or not (listed := list(fields)):
        raise pipeline.error(DefinitionError, f"has order_by={given!r} for {table!r}", hint=_HOW)
    order = tuple(_column(pipeline, table, each) for each in listed)
    names = [each.name for each in order]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise pipeline.error(
            DefinitionError,
            f"has {table.__table_name__}.{twice[0]} twice in order_by",
            hint="name each field once: the first time decides",
        )
    return order


def _column(pipeline: Pipeline, table: type[Table], given: Any) -> SortColumn:
    field = given.field if isinstance(given, Descending) else given
    if not isinstance(field, Field):
        raise pipeline.error(DefinitionError, f"has {given!r} in order_by", hint=_HOW)
    known = table.__fields__.get(field.name)
    if known is None or field.table != table.__table_name__:
        raise pipeline.error(
            UnknownField,
            f"has {field} in the order_by of {table.__table_name__}, which has no such field",
            hint=f"fields of {table.__table_name__}: {', '.join(table.__fields__)}",
        )
    if not can_be_sorted(known.type):
        raise pipeline.error(
            DefinitionError,
            f"has {field} in order_by, which is {known.type}",
            hint="sort by numbers, text, bytes, booleans, dates or timestamps",
        )
    return SortColumn(field.name, isinstance(given, Descending))


def sorted_frame(frame: DataFrame, order: Order) -> DataFrame:
    """The rows as Spark sorts them."""
    from pyspark.sql import functions as F

    columns: list[Column] = [F.desc(each.name) if each.descending else F.asc(each.name) for each in order]
    return frame.orderBy(*columns)

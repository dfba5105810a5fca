"""Does a batch have the columns that the output's table declares?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import TypeMismatch, UnknownField
from penstock.spark.flow import Flow
from penstock.types.spark import is_same, spark_type, widens

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.types.tables import Table


def flow_of(frame: DataFrame, table: type[Table]) -> Flow:
    """The columns of ``table``, in its order and with its types; other columns are left out.

    A narrower type is widened. A type that could lose something raises `TypeMismatch`, a column that is
    not there `UnknownField`.
    """
    from pyspark.sql import functions as F

    columns = []
    for field in table.__fields__.values():
        if field.name not in frame.columns:
            raise UnknownField(
                f"the rows for {table.__table_name__} have no column {field.name!r}",
                left="nothing was written",
                hint=f"they have: {', '.join(frame.columns)}",
            )
        have, want = frame.schema[field.name].dataType, spark_type(field.type)
        if not widens(have, field.type):
            raise TypeMismatch(
                f"the rows for {table.__table_name__} have {field.name} as {have.simpleString()}, "
                f"declared as {want.simpleString()}",
                left="nothing was written",
                hint=f'cast it: F.col("{field.name}").cast("{want.simpleString()}")',
            )
        column = F.col(f"`{field.name}`")
        columns.append(column if is_same(have, field.type) else column.cast(want).alias(field.name))
    return Flow(table.__table_name__, frame.select(*columns), table.arrow_schema())

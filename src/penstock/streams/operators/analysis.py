"""What Spark's analyser says about an operator, and bringing its columns to those of a table."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import DefinitionError, NullInField, PenstockError, TypeMismatch, UnknownField
from penstock.spark.faults import encode
from penstock.spark.flow import Flow
from penstock.streams.api.shape import Shape
from penstock.streams.operators.query import CompiledRows, EventTimeMark
from penstock.streams.operators.sites import Site
from penstock.types.spark import is_same, spark_type, widens
from penstock.types.tables import Field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@contextmanager
def analysed(site: Site, *, own: bool = True) -> Iterator[None]:
    """Errors of Spark's analysis are errors of the definition. ``own``: all that is run is Spark's or ours.

    Otherwise the block calls a function of the user's, and whatever it raises is one too.
    """
    from pyspark.errors import AnalysisException, ParseException

    logger = logging.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    except PenstockError:
        raise
    except (AnalysisException, ParseException) as error:
        raise site.error(DefinitionError, f"cannot be analysed: {_first_line(error)}") from error
    except Exception as error:
        # What py4j itself raises says that Spark is gone, and nothing about the definition.
        if own or type(error).__module__.startswith("py4j"):
            raise
        raise site.error(
            DefinitionError, f"cannot be planned: {type(error).__name__}: {_first_line(error)}"
        ) from error
    finally:
        logger.disabled = before


def fitted(site: Site, frame: DataFrame, shape: Shape, mark: EventTimeMark | None) -> CompiledRows:
    """The frame as rows of a shape: its columns by name and no others, of fitting types, null where allowed.

    Types and names are checked now; a null in a field without ``| None`` fails the batch. With a ``mark``,
    the event time must be the column that was marked.
    """
    _check_names(site, frame.columns, shape)
    if mark is not None and not mark.is_on(frame):
        raise site.error(
            DefinitionError,
            f"computes the event time {shape.name}.{mark.field} anew",
            hint="hand the column on as it is; give a computed time a name of its own",
        )
    columns = [_column(site, frame, shape.table.__fields__[name], mark) for name in shape.fields]
    with analysed(site):
        made = frame.select(*columns)
    return CompiledRows(Flow(shape.name, made, shape.schema), mark)


def _check_names(site: Site, columns: Sequence[str], shape: Shape) -> None:
    if missing := [name for name in shape.fields if name not in columns]:
        raise site.error(UnknownField, f"makes no {', '.join(f'{shape.name}.{name}' for name in missing)}")
    if extra := [name for name in columns if name not in shape.fields]:
        raise site.error(
            UnknownField,
            f"makes {', '.join(extra)}, which rows of {shape.name} do not have here",
            hint="drop the column, or add it to the table",
        )
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise site.error(DefinitionError, f"makes {shape.name} with two columns {twice[0]}")


def _column(site: Site, frame: DataFrame, field: Field, mark: EventTimeMark | None) -> Column:
    from pyspark.sql import functions as F

    have, want = frame.schema[field.name], spark_type(field.type)
    if not widens(have.dataType, field.type):
        raise site.error(
            TypeMismatch,
            f"makes {field} a {have.dataType.simpleString()}, but it is declared as {want.simpleString()}",
            hint=f'cast it: .cast("{want.simpleString()}"), or change the declaration',
        )
    column = F.col(f"`{field.name}`")
    if mark is not None and field.name == mark.field:
        return column
    if have.nullable and not field.nullable:
        missing = site.error(
            NullInField,
            f"makes a row in which {field} is null, but it is declared without `| None`",
            hint=f"fill the value, or declare {field.name} as nullable",
        )
        column = F.when(column.isNull(), F.raise_error(F.lit(encode(missing)))).otherwise(column)
    if not is_same(have.dataType, field.type):
        column = column.cast(want)
    # A column that was the event time of other rows is an ordinary one here.
    return column.alias(field.name, metadata={})


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__

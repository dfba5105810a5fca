"""Types that batches will have for sure, for clients that must know them before the first row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from penstock.errors import SqlError
from penstock.gateway import types as pg
from penstock.gateway.base import Column, Prepared
from penstock.gateway.engine.plans import ShadowPlan, SparkPlan, SystemPlan

Described = Callable[[SparkPlan], tuple[Column, ...]]
"""The columns as Spark's analysis finds them."""


def exact_types(prepared: Prepared, described: Described) -> Prepared:
    """The same with the precision of numbers that PostgreSQL describes without one, as Spark has it."""
    plan = prepared.plan
    if isinstance(plan, ShadowPlan):
        return replace(prepared, plan=replace(plan, exact=True))
    if isinstance(plan, SparkPlan):
        columns = _columns(plan, described)
        return replace(prepared, columns=columns, plan=replace(plan, columns=columns))
    if isinstance(plan, SystemPlan) and isinstance(plan.spark, SparkPlan):
        try:
            columns = _columns(plan.spark, described)
        except SqlError:
            # Only PostgreSQL can do it.
            columns = plan.spark.columns
        other = replace(plan.spark, columns=columns)
        return replace(
            prepared, columns=columns, plan=replace(plan, columns=columns, spark=other, exact=True)
        )
    return prepared


def _columns(plan: SparkPlan, described: Described) -> tuple[Column, ...]:
    if not any(map(_open, plan.columns)):
        return plan.columns
    pairs = zip(plan.columns, described(plan), strict=True)
    return tuple(
        replace(column, type=spark.type) if _open(column) and pa.types.is_decimal(spark.type) else column
        for column, spark in pairs
    )


def _open(column: Column) -> bool:
    return column.oid == pg.NUMERIC and column.typmod == -1

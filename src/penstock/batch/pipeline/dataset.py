"""Datasets: the tables of one partition, on their way through a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.spark.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Dataset:
    """Named DataFrames plus resources. It is a value: adding something makes a new dataset."""

    tables: Mapping[str, DataFrame | Flow] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    spark: SparkSession | None = None

    def __getitem__(self, table: str) -> DataFrame:
        """The rows of a table as a DataFrame."""
        if table not in self.tables:
            raise UsageError(
                f"the dataset has no table {table!r}", hint=f"it has: {', '.join(self.tables) or 'none'}"
            )
        rows = self.tables[table]
        if not isinstance(rows, Flow):
            return rows
        if self.spark is None:
            raise UsageError("the dataset knows no Spark session", hint="pass spark=… when it is made")
        return rows.frame(self.spark)

    def with_tables(self, **tables: DataFrame) -> Dataset:
        return Dataset({**self.tables, **tables}, self.resources, self.spark)

    def with_resources(self, **resources: Any) -> Dataset:
        return Dataset(self.tables, {**self.resources, **resources}, self.spark)

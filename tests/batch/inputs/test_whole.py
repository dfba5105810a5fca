"""Which files Spark may read by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.batch.inputs import Whole, whole_files
from penstock.batch.inputs.model import Input
from penstock.errors import InputChanged
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def registered(tmp_path: Path, *files: pa.Table) -> Input:
    folder = tmp_path / "data"
    folder.mkdir()
    for number, table in enumerate(files):
        pq.write_table(table, folder / f"{number}.parquet")
    store = ps.open_store(f"sqlite:///{tmp_path}/store.db")
    storage = ps.Storage(tmp_path / "storage")
    return ps.register(None, store, storage, "rows", str(folder), partition_rows=10, table_schema=SCHEMA)


def table(begin: int, end: int, kind: pa.DataType | None = None) -> pa.Table:
    ids = pa.array(range(begin, end), kind or pa.int64())
    return pa.table({"id": ids, "name": [f"n{i}" for i in range(begin, end)]})


def names(whole: Whole | None) -> list[str] | None:
    return [Path(path).stem for path in whole.paths] if whole else None


def test_files_that_lie_inside_the_range(tmp_path: Path) -> None:
    found = registered(tmp_path, table(0, 10), table(10, 20), table(20, 30))
    assert names(whole_files(found, ps.Range(0, 30), SCHEMA)) == ["0", "1", "2"]
    whole = whole_files(found, ps.Range(5, 30), SCHEMA)
    assert whole is not None
    assert names(whole) == ["1", "2"]
    assert whole.rest == (ps.Range(5, 10),)


def test_not_when_most_of_the_range_is_pieces_of_files(tmp_path: Path) -> None:
    found = registered(tmp_path, table(0, 10), table(10, 14), table(14, 30))
    assert whole_files(found, ps.Range(5, 20), SCHEMA) is None


def test_not_when_a_type_has_to_be_cast(tmp_path: Path) -> None:
    found = registered(tmp_path, table(0, 10, pa.uint32()))
    assert whole_files(found, ps.Range(0, 10), SCHEMA) is None


def test_narrower_integers_and_other_layouts_of_text_are_read_by_spark(
    tmp_path: Path, spark: SparkSession
) -> None:
    rows = table(0, 10, pa.int32())
    rows = rows.set_column(1, "name", rows["name"].cast(pa.string_view()))
    found = registered(tmp_path, rows)
    whole = whole_files(found, ps.Range(0, 10), SCHEMA)
    assert names(whole) == ["0"]
    assert whole is not None
    read = spark.read.schema(spark_schema(SCHEMA)).parquet(*whole.paths).collect()
    assert sorted(map(tuple, read)) == [(i, f"n{i}") for i in range(10)]


def test_not_when_a_required_value_may_be_missing(tmp_path: Path) -> None:
    with_null = pa.table({"id": pa.array([1, None]), "name": ["a", "b"]})
    found = registered(tmp_path, table(0, 10), with_null)
    whole = whole_files(found, ps.Range(0, 12), SCHEMA)
    assert whole is not None
    assert names(whole) == ["0"]
    assert whole.rest == (ps.Range(10, 12),)


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    found = registered(tmp_path, table(0, 10))
    whole = whole_files(found, ps.Range(0, 10), SCHEMA)
    assert whole is not None
    whole.check_unchanged()
    pq.write_table(table(0, 11), tmp_path / "data" / "0.parquet")
    with pytest.raises(InputChanged, match=r"0\.parquet"):
        whole.check_unchanged()

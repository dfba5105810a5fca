"""Every format: all partitions together are the file, and one reads little more than itself."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.batch import inputs
from penstock.batch.inputs.formats import text as text_format
from penstock.core.ranges import Range
from penstock.errors import UsageError
from tests.batch.inputs.support import Place, sample, save

FORMATS = ["parquet", "arrow", "csv", "jsonl"]


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    # Small granules and blocks, so that small files have many of them.
    monkeypatch.setattr(text_format, "GRANULE", 16)
    monkeypatch.setattr(text_format, "BLOCK", 700)
    return str(request.param)


@pytest.mark.parametrize(("rows", "partition"), [(1, 1), (1, 10), (100, 25), (100, 7), (101, 1000), (60, 1)])
def test_all_partitions_are_the_file(place: Place, kind: str, rows: int, partition: int) -> None:
    table = sample(rows)
    registered = place.register(save(table, place.data / f"x.{kind}"), rows=partition)
    assert registered.total_rows == rows
    assert registered.schema.equals(table.schema)
    assert place.partitions(registered).equals(table)


def test_several_files_are_read_in_name_order_and_empty_ones_do_not_matter(place: Place, kind: str) -> None:
    sizes = [30, 0, 1, 55, 0]
    tables = [sample(size, 100 * i) for i, size in enumerate(sizes)]
    for i, table in enumerate(tables):
        save(table, place.data / f"part-{i}.{kind}")
    (place.data / "_SUCCESS").touch()
    registered = place.register(place.data, rows=8)
    whole = pa.concat_tables(tables)
    assert registered.total_rows == 86
    assert place.partitions(registered).equals(whole)
    assert place.read(registered, Range(29, 33)).equals(whole.slice(29, 4))


@pytest.mark.parametrize("tasks", [1, 2, 3, 8, 500])
def test_a_range_is_cut_for_tasks_without_gap_or_overlap(place: Place, kind: str, tasks: int) -> None:
    table = sample(300)
    registered = place.register(save(table, place.data / f"x.{kind}"))
    rows = Range(13, 290)
    made = inputs.splits(registered, place.storage, rows, tasks)
    assert len(made) <= tasks
    assert min(split.rows for split in made) > 0
    assert place.read(registered, rows, tasks).equals(table.slice(13, 277))


def test_columns_are_pruned_and_ordered_as_asked(place: Place, kind: str) -> None:
    table = sample(50)
    registered = place.register(save(table, place.data / f"x.{kind}"))
    assert place.read(registered, columns=["note", "id"]).equals(table.select(["note", "id"]))
    with pytest.raises(UsageError, match="no column nope"):
        place.read(registered, columns=["nope"])


def test_batches_are_neither_too_large_nor_tiny(place: Place, kind: str) -> None:
    registered = place.register(save(sample(200), place.data / f"x.{kind}", chunk=1))
    (split,) = inputs.splits(registered, place.storage, Range(0, 200), 1)
    sizes = [batch.num_rows for batch in split.batches(50)]
    assert max(sizes) <= 50
    assert len(sizes) <= 10


def test_a_split_travels_to_another_process(place: Place, kind: str) -> None:
    table = sample(40)
    registered = place.register(save(table, place.data / f"x.{kind}"))
    (split,) = inputs.splits(registered, place.storage, Range(5, 25), 1)
    data = pickle.dumps(split)
    assert len(data) < 10_000
    assert pa.Table.from_batches(pickle.loads(data).batches()).equals(table.slice(5, 20))


def test_cuts_fall_on_row_groups_when_these_are_near(place: Place) -> None:
    registered = place.register(save(sample(1000), place.data / "x.parquet", chunk=240))
    made = inputs.splits(registered, place.storage, Range(0, 1000), 4)
    assert [split.rows for split in made] == [240, 240, 240, 280]


@pytest.mark.parametrize("kind", FORMATS)
def test_one_partition_reads_a_small_part_of_the_file(place: Place, kind: str) -> None:
    rows = 400_000
    numbers = np.random.default_rng(1).integers(0, 1 << 60, rows)
    table = pa.table({"a": numbers, "b": numbers[::-1].copy()})
    path = save(table, place.data / f"x.{kind}", chunk=40_000)
    registered = place.register(path, rows=1000)
    split = inputs.splits(registered, place.storage, Range(200_000, 201_000), 1)[0]
    before = bytes_read()
    assert sum(batch.num_rows for batch in split.batches()) == 1000
    assert bytes_read() - before < path.stat().st_size / 4


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


def test_a_million_partitions_cost_nothing(place: Place) -> None:
    table = pa.table({"id": np.arange(1_000_000)})
    path = save(table, place.data / "x.parquet", chunk=100_000)
    registered = place.register(path, rows=1)
    assert registered.partitions == 1_000_000
    assert place.read(registered, registered.partition(765_432))["id"].to_pylist() == [765_432]
    documents = list(place.store.scan(""))
    assert len(documents) == 1
    assert len(documents[0].value) < 1000
    assert sum(size for _, size in place.storage.list("inputs")) < 10_000

"""Results on disk are bounded: who reads slowly slows the query, and nobody fills the disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.engine.engine import SparkEngine
from penstock.server.engine.results.backpressure import HALT, Quotas, ResultWatch
from penstock.server.engine.results.spool import ResultSpool, check_rows
from tests.server.engine.standins import FileRelation, FileTables, connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.server.relations import Tables

MB = 1 << 20
ROWS = 400_000
QUOTA = 8 * MB


class Many(FileRelation):
    """Some 130 MB of rows in as many partitions as its path says."""

    def bind(self, spark: SparkSession, query: str) -> str:
        frame = spark.range(0, ROWS, 1, int(self.path))
        frame.selectExpr("id", "repeat('x', 300) AS t").createOrReplaceTempView(f"many_{self.path}")
        return f"many_{self.path}"


@pytest.fixture
def engine(spark: SparkSession, tables: FileTables, tmp_path: Path) -> Iterator[SparkEngine]:
    schema = pa.schema([("id", pa.int64()), ("t", pa.string())])
    for parts in (1, 40):
        relation = Many("public", f"many{parts}", str(parts), schema, {"id": "bigint", "t": "string"})
        tables.relations["public", f"many{parts}"] = relation
    quotas = Quotas(query=QUOTA, free=0)
    engine = SparkEngine(spark, cast("Tables", tables), spool=str(tmp_path / "spool"), quotas=quotas)
    engine.workplace = replace(engine.workplace, small=-1, piece=MB)
    yield engine
    engine.stop()


def size(folder: Path) -> int:
    """The bytes of all results, which may be deleted meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".arrow"):
                with suppress(FileNotFoundError):
                    total += Path(parent, name).stat().st_size
    return total


@pytest.mark.parametrize("parts", [1, 40])
def test_a_reader_that_stands_still_stops_its_query(engine: SparkEngine, tmp_path: Path, parts: int) -> None:
    client = connected(engine)
    execution = client.execute(client.prepare(f"SELECT id, t FROM many{parts}"))
    folder = tmp_path / "spool"
    largest = 0
    stop = threading.Event()

    def watch() -> None:
        nonlocal largest
        while not stop.wait(0.01):
            largest = max(largest, size(folder))

    watcher = threading.Thread(target=watch)
    watcher.start()
    deadline = time.monotonic() + 60
    while not list(folder.glob(f"*/{HALT}")):
        assert time.monotonic() < deadline, "the writers were never halted"
        time.sleep(0.01)
    settled = -1
    while settled != size(folder):
        settled = size(folder)
        time.sleep(0.5)
    expected = 0
    for batch in execution.batches():
        ids = batch.column(0)
        assert (ids[0].as_py(), ids[-1].as_py()) == (expected, expected + len(ids) - 1)
        expected += len(ids)
    stop.set()
    watcher.join()
    execution.close()
    assert expected == ROWS
    # All of it would be 130 MB. What is on its way when writers are halted, some batches each, comes on top.
    assert largest < QUOTA + 40 * MB
    assert list(folder.iterdir()) == []


class Pretended:
    """A result that takes as much of the disk as a test says."""

    def __init__(self, folder: Path, query: str, bytes_: int) -> None:
        self.query, self.bytes = query, bytes_
        self.folder = folder / query
        self.folder.mkdir(parents=True)
        self.part = self.batches_read = 0
        self.unread = True

    def is_unread(self) -> bool:
        return self.unread

    def size(self) -> int:
        return self.bytes


@dataclass
class World:
    """What a keeper sees."""

    free: int = 100
    now: float = 0.0
    others: bool = False


def halted(*spools: Pretended) -> list[bool]:
    return [(spool.folder / HALT).exists() for spool in spools]


def test_quotas_of_queries_users_and_the_disk(tmp_path: Path) -> None:
    world = World()
    quotas, free = Quotas(10, 15, 50), lambda _: world.free
    keeper = ResultWatch(quotas, lambda _: world.others, lambda: world.now, free, alone=False)
    a, b, c = (Pretended(tmp_path, name, count) for name, count in (("a", 8), ("b", 4), ("c", 4)))
    failed: dict[str, SqlError] = {}

    def fails(spool: Pretended) -> Callable[[SqlError], None]:
        return partial(failed.__setitem__, spool.query)

    for spool, user in ((a, "ann"), (b, "ann"), (c, "bob")):
        keeper.add(cast("ResultSpool", spool), user, fails(spool))
    keeper.look()
    assert halted(a, b, c) == [False, False, False]
    a.bytes = 10
    keeper.look()
    assert halted(a, b, c) == [True, False, False]
    a.bytes, b.bytes = 9, 6
    keeper.look()
    assert halted(a, b, c) == [True, True, False]
    a.bytes = b.bytes = 1
    keeper.look()
    assert halted(a, b, c) == [False, False, False]
    world.free, c.bytes = 49, 0
    keeper.look()
    world.now = 10.0
    keeper.look()
    assert halted(a, b, c) == [True, True, True]
    assert failed["c"].sqlstate == "53100" and "a" not in failed
    world.others, world.now = True, 100.0
    b.batches_read += 1
    keeper.look()
    # One whose reader goes on may go on; one that stands still ends when others want its cores.
    assert failed["a"].sqlstate == "57014" and "b" not in failed


def test_a_reader_that_waits_for_rows_does_not_stand_still(tmp_path: Path) -> None:
    world = World(others=True)
    keeper = ResultWatch(
        Quotas(10, 15, 50), lambda _: world.others, lambda: world.now, lambda _: 100, alone=False
    )
    spool = Pretended(tmp_path, "a", 12)
    failed: list[SqlError] = []
    keeper.add(cast("ResultSpool", spool), "ann", failed.append)
    spool.unread = False
    for now in (0.0, 50.0, 100.0, 500.0):
        # The first partition is slow, and the others have filled what the query may have on disk.
        world.now = now
        keeper.look()
        assert keeper.is_halted("a") and not failed
    spool.unread = True
    world.now = 550.0
    keeper.look()
    spool.batches_read += 1
    for now in (570.0, 630.0):
        world.now = now
        keeper.look()
        assert not failed
    world.now = 631.0
    keeper.look()
    assert failed[0].sqlstate == "57014"
    keeper.remove(cast("ResultSpool", spool))
    assert not keeper.is_halted("a")


def test_what_lies_unread_and_what_is_awaited(tmp_path: Path) -> None:
    spool = ResultSpool(str(tmp_path), "q")
    assert spool.folder is not None and not spool.is_unread()
    batch = pa.RecordBatch.from_pydict({"n": [1]})

    def write(part: int) -> None:
        assert spool.folder is not None
        name = f"part-{part:05d}-0-0.arrow"
        with pa.OSFile(str(spool.folder / name), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as out:
            out.write_batch(batch)
            out.write_batch(batch)
        (spool.folder / f"part-{part:05d}").write_text(f'["{name}"]')

    write(1)
    # Nobody can read a later partition first.
    assert not spool.is_unread()
    write(0)
    assert spool.is_unread()
    seen: list[bool] = []

    def check(_: float) -> bool:
        seen.append(spool.is_unread())
        if len(seen) == 1:
            write(2)
            # The reader is there, and takes it next.
            assert not spool.is_unread()
        return len(seen) > 2

    rows = spool.batches(check)
    for count in range(6):
        next(rows)
        assert spool.is_unread() and spool.batches_read == count
    assert next(rows, None) is None
    assert spool.batches_read == 6 and seen and not any(seen)


def test_a_row_that_is_too_large_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"t": ["x" * 10, "y" * 2000, "z"]})
    check_rows(batch, 4000)
    with pytest.raises(SqlError, match=r"serve\.row_size") as told:
        check_rows(batch, 1500)
    assert told.value.sqlstate == "54000"
    check_rows(pa.RecordBatch.from_pydict({"t": ["x" * 100] * 100}), 1500)

"""What every sink must do, as tests that anyone can run on their own.

::

    class TestMySink(SinkConformance):
        points = ("mine.files", "mine.committed")       # its failpoints, if it has some

        @pytest.fixture
        def sink(self, tmp_path):
            return MySink(tmp_path / "place")

        def read(self, sink, target):
            return rows_at(sink.place)                  # a row is a tuple: id, city, amount

They take the fixtures ``sink`` (for a place that is new for each test), ``spark`` (a session), ``tmp_path``.
Of a sink that is not ``exactly_once``, what it promises is checked: all rows at least once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.core.failpoints import armed
from penstock.errors import FencedError, StaleToken, StreamMismatch, TerminalError
from penstock.sinks.base import Batch, Mode, Sink, Target
from penstock.storage import Storage
from penstock.store.memory import MemoryStore
from penstock.types.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = tuple[Any, ...]


class Sale(Table):
    """The rows of these tests."""

    id: int
    city: str
    amount: int | None


class Stranger(Table):
    """Rows that do not fit a place with those of `Sale`."""

    id: str
    more: float


class Crash(BaseException):
    """The process ends here: nothing may catch it."""


class SinkConformance:
    """Subclass it, provide a ``sink`` fixture, and say with `read` what is visible."""

    points: ClassVar[Sequence[str]] = ()
    """The failpoints that a write comes to, in their order: it is ended at each of them."""

    mode: ClassVar[Mode] = "append"
    """The mode of the output. In ``update``, ``id`` is the key."""

    checks_schema: ClassVar[bool] = True
    """Whether its place has columns, which rows of another table do not fit."""

    def read(self, sink: Sink, target: Target) -> Iterable[Row]:
        """All rows that a reader of the sink's place sees now, in any order."""
        raise NotImplementedError

    def target(self, spark: SparkSession, tmp_path: Path) -> Target:
        """The output that the tests write for, with token 1."""
        storage = Storage(tmp_path / "conformance-storage")
        keys = ("id",) if self.mode == "update" else ()
        return Target("sales", "s1", "out", 1, Sale, self.mode, keys, MemoryStore(), storage, spark)

    # batches

    def test_batches_are_visible_once_they_are_written(
        self, sink: Sink, spark: SparkSession, tmp_path: Path
    ) -> None:
        target = self.target(spark, tmp_path)
        writer = sink.open(target)
        for number in range(3):
            writer.write(_frame(target, number), _batch(number))
            assert self._rows(sink, target) == _rows(*range(number + 1))
        writer.close()
        assert self._rows(sink, target) == _rows(0, 1, 2)

    def test_an_empty_batch_is_a_batch(self, sink: Sink, spark: SparkSession, tmp_path: Path) -> None:
        target = self.target(spark, tmp_path)
        writer = sink.open(target)
        for number, count in enumerate((0, 5, 0, 5)):
            writer.write(_frame(target, number, count), _batch(number))
        assert self._rows(sink, target) == _rows(1, 3)
        again = sink.open(replace(target, token=2))
        again.write(_frame(target, 4, 0), _batch(4))
        again.write(_frame(target, 5), _batch(5))
        assert self._rows(sink, target) == _rows(1, 3, 5)

    def test_a_repeated_batch_is_there_once(self, sink: Sink, spark: SparkSession, tmp_path: Path) -> None:
        target = self.target(spark, tmp_path)
        writer = sink.open(target)
        for number in (0, 1, 1):
            writer.write(_frame(target, number), _batch(number))
        self._agree(sink, target, 0, 1)
        later = sink.open(replace(target, token=2))
        for number in (1, 2):
            later.write(_frame(target, number), _batch(number))
        self._agree(sink, target, 0, 1, 2)

    def test_a_repeated_batch_is_computed(self, sink: Sink, spark: SparkSession, tmp_path: Path) -> None:
        """Spark takes watermarks and the state of the next batch from it."""
        target = self.target(spark, tmp_path)
        writer = sink.open(target)
        writer.write(_frame(target, 0), _batch(0))
        try:
            writer.write(_broken(target, 0), _batch(0))
        except Exception:
            return
        raise AssertionError("the rows of a repeated batch were not computed: see pass_over")

    def test_a_gap_is_refused(self, sink: Sink, spark: SparkSession, tmp_path: Path) -> None:
        if not sink.exactly_once:
            return
        target = self.target(spark, tmp_path)
        writer = sink.open(target)
        writer.write(_frame(target, 0), _batch(0))
        _refused(StreamMismatch, lambda: writer.write(_frame(target, 2), _batch(2)))
        assert self._rows(sink, target) == _rows(0)

    # owners

    def test_an_earlier_owner_is_refused(self, sink: Sink, spark: SparkSession, tmp_path: Path) -> None:
        if not sink.exactly_once:
            return
        target = self.target(spark, tmp_path)
        earlier = sink.open(target)
        earlier.write(_frame(target, 0), _batch(0))
        later = sink.open(replace(target, token=2))
        _refused(FencedError, lambda: earlier.write(_frame(target, 1), _batch(1)))
        _refused(StaleToken, lambda: sink.open(target))
        assert self._rows(sink, target) == _rows(0)
        later.write(_frame(target, 1), _batch(1))
        assert self._rows(sink, target) == _rows(0, 1)

    def test_two_outputs_know_their_own_batches(
        self, sink: Sink, spark: SparkSession, tmp_path: Path
    ) -> None:
        """One that was dropped and made anew begins with batch 0, which is not a repetition."""
        target = self.target(spark, tmp_path)
        sink.open(target).write(_frame(target, 0), _batch(0))
        other = replace(target, id="s2")
        sink.open(other).write(_frame(target, 1), _batch(0))
        assert set(_rows(1)) <= set(self._rows(sink, other))

    # what goes wrong

    def test_a_batch_that_fails_leaves_nothing(self, sink: Sink, spark: SparkSession, tmp_path: Path) -> None:
        target = self.target(spark, tmp_path)
        writer = sink.open(target)
        writer.write(_frame(target, 0), _batch(0))
        _refused(Exception, lambda: writer.write(_broken(target, 1), _batch(1)))
        self._agree(sink, target, 0)
        writer.write(_frame(target, 1), _batch(1))
        self._agree(sink, target, 0, 1)

    def test_a_crash_anywhere_is_mended_by_the_repetition(
        self, sink: Sink, spark: SparkSession, tmp_path: Path
    ) -> None:
        target = self.target(spark, tmp_path)
        sink.open(target).write(_frame(target, 0), _batch(0))
        for number, point in enumerate(self.points, 1):
            writer = sink.open(replace(target, token=2 * number))
            with armed({point: _crash}) as reached:
                with suppress(Crash):
                    writer.write(_frame(target, number), _batch(number))
                assert reached, f"a write does not come to {point}"
            after = sink.open(replace(target, token=2 * number + 1))
            after.write(_frame(target, number), _batch(number))
            self._agree(sink, target, *range(number + 1))

    def test_rows_of_another_table_are_refused(self, sink: Sink, spark: SparkSession, tmp_path: Path) -> None:
        if not self.checks_schema:
            return
        target = self.target(spark, tmp_path)
        sink.open(target).write(_frame(target, 0), _batch(0))
        stranger = replace(target, token=2, table=Stranger, keys=())

        def write() -> None:
            frame = spark.createDataFrame([("x", 1.0)], "id string, more double")
            sink.open(stranger).write(frame, _batch(1))

        _refused(TerminalError, write)
        assert self._rows(sink, target) == _rows(0)

    # what it says of itself

    def test_it_describes_itself(self, sink: Sink) -> None:
        described = sink.describe()
        assert described.get("kind"), "kind says what the sink is"
        assert all(isinstance(each, str) for pair in described.items() for each in pair)
        assert json.dumps(described) == json.dumps(sink.describe())
        assert self.mode in sink.modes

    def _rows(self, sink: Sink, target: Target) -> list[Row]:
        return sorted((tuple(row) for row in self.read(sink, target)), key=_by_id)

    def _agree(self, sink: Sink, target: Target, *batches: int) -> None:
        found, wanted = self._rows(sink, target), _rows(*batches)
        if sink.exactly_once:
            assert found == wanted
        else:
            assert sorted(set(found), key=_by_id) == wanted


def _by_id(row: Row) -> int:
    return int(row[0])


def _rows(*batches: int, count: int = 5) -> list[Row]:
    """Rows of batches: ids do not repeat in others."""
    return [
        (batch * 1000 + n, f"city {n % 3}", None if n % 4 == 0 else n)
        for batch in batches
        for n in range(count)
    ]


def _batch(number: int) -> Batch:
    return Batch(number, number + 1)


def _frame(target: Target, number: int, count: int = 5) -> DataFrame:
    import pyarrow as pa

    schema = Sale.arrow_schema()
    rows = [dict(zip(schema.names, row, strict=True)) for row in _rows(number, count=count)]
    frame = target.spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema))
    return frame.repartition(2) if rows else frame


def _broken(target: Target, number: int) -> DataFrame:
    """Rows of which one cannot be computed."""
    from pyspark.sql import functions as F

    last = F.col("id") == number * 1000 + 4
    amount = F.when(last, F.raise_error("this row cannot be computed").cast("long")).otherwise(
        F.col("amount")
    )
    return _frame(target, number).withColumn("amount", amount)


def _crash() -> None:
    raise Crash


def _refused(kind: type[Exception], act: Callable[[], object]) -> None:
    try:
        act()
    except kind:
        return
    raise AssertionError(f"it was accepted, without a {kind.__name__}")

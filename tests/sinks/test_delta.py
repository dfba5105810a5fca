"""Delta Lake: a batch is in the table once, whoever dies where, and also with others writing."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from penstock.errors import (
    FencedError,
    NullInField,
    StaleToken,
    StorageFull,
    StreamError,
    StreamMismatch,
    UsageError,
)
from penstock.sinks.base import Writer
from penstock.sinks.delta import sink as module
from penstock.sinks.delta.files import cut
from penstock.sinks.delta.sink import DeltaSink
from penstock.sinks.delta.stats import Statistics
from penstock.sinks.delta.table import check_table
from penstock.types.tables import Precision, Table
from tests.sinks.support import Bench, Rows, Sale, crash_at, meanwhile, number, plain, sales
from tests.storage.test_storage import tiny_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = ["sink.delta.files", "sink.delta.committed"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "sales table"


@pytest.fixture
def sink(place: Path) -> DeltaSink:
    return DeltaSink(str(place))


def rows(place: Path, version: int | None = None) -> Rows:
    table = DeltaTable(place, version=version).to_pyarrow_table().select(["id", "city", "amount"])
    return plain(tuple(row.values()) for row in table.to_pylist())


def test_batches_are_added(output: Bench, sink: DeltaSink, place: Path) -> None:
    writer = output.open(sink, 1)
    for batch in range(3):
        writer.write(output.frame(sales(batch)), number(batch))
    writer.write(output.frame([]), number(3))
    assert rows(place) == plain(sales(0) + sales(1) + sales(2))
    table = DeltaTable(place)
    assert pa.schema(table.schema().to_arrow()) == Sale.arrow_schema()
    assert table.transaction_version("penstock/sales/s1/out") == 3
    assert table.transaction_version("penstock/sales/s1/out/epoch") == 4
    assert table.history(1)[0]["penstock.epoch"] == 4


def test_a_repeated_batch_changes_nothing(output: Bench, sink: DeltaSink, place: Path) -> None:
    writer = output.open(sink, 1)
    writer.write(output.frame(sales(0)), number(0))
    before = DeltaTable(place).version()
    writer.write(output.frame(sales(0)), number(0))
    assert DeltaTable(place).version() == before
    output.open(sink, 2).write(output.frame(sales(0)), number(0))
    assert rows(place) == plain(sales(0))


def test_an_earlier_owner_is_refused(output: Bench, sink: DeltaSink, place: Path) -> None:
    earlier = output.open(sink, 1)
    earlier.write(output.frame(sales(0)), number(0))
    later = output.open(sink, 2)
    with pytest.raises(StaleToken, match="token 2"):
        earlier.write(output.frame(sales(1)), number(1))
    with pytest.raises(StaleToken):
        output.open(sink, 1)
    later.write(output.frame(sales(1)), number(1))
    assert rows(place) == plain(sales(0) + sales(1))


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_anywhere_is_mended_by_the_repetition(
    output: Bench, sink: DeltaSink, place: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    writer = output.open(sink, 1)
    writer.write(output.frame(sales(0)), number(0))
    with crash_at(monkeypatch, module, point):
        writer.write(output.frame(sales(1)), number(1))
    assert len(rows(place)) == (20 if point == POINTS[-1] else 10)
    after = output.open(sink, 2)
    after.write(output.frame(sales(1)), number(1))
    after.write(output.frame(sales(2)), number(2))
    assert rows(place) == plain(sales(0) + sales(1) + sales(2))


def test_an_owner_that_is_replaced_before_its_commit_adds_nothing(
    output: Bench, sink: DeltaSink, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = output.open(sink, 1)

    def take_over() -> None:
        output.open(sink, 2).write(output.frame(sales(0, 3)), number(0))

    with meanwhile(monkeypatch, module, POINTS[0], take_over), pytest.raises(StaleToken):
        earlier.write(output.frame(sales(0)), number(0))
    assert rows(place) == plain(sales(0, 3))


@pytest.mark.parametrize("writes", [False, True], ids=["opened", "wrote"])
def test_an_owner_that_is_replaced_inside_its_commit_adds_nothing(
    output: Bench, sink: DeltaSink, place: Path, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    """It has looked and found itself the owner; what comes between that and its commit is Delta's to see."""
    earlier = output.open(sink, 1)
    commit = module._DeltaWriter._commit
    taken: list[Writer] = []

    def late(self: module._DeltaWriter, *arguments: object) -> None:
        if self is earlier and not taken:
            taken.append(output.open(sink, 2))
            if writes:
                taken[0].write(output.frame(sales(0, 3)), number(0))
        commit(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module._DeltaWriter, "_commit", late)
    with pytest.raises(StaleToken):
        earlier.write(output.frame(sales(0)), number(0))
    assert rows(place) == (plain(sales(0, 3)) if writes else [])


def test_two_attempts_of_one_owner_leave_the_batch_once(
    output: Bench, sink: DeltaSink, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = output.open(sink, 1), output.open(sink, 1)
    with meanwhile(monkeypatch, module, POINTS[0], lambda: other.write(output.frame(sales(0)), number(0))):
        one.write(output.frame(sales(0)), number(0))
    assert rows(place) == plain(sales(0))


def test_owners_that_race_leave_every_batch_once(output: Bench, sink: DeltaSink, place: Path) -> None:
    """Each opens and writes on from where the table is, as one that thinks the others are dead."""
    frames = [output.frame(sales(batch, 3)) for batch in range(4)]

    def own(token: int) -> None:
        with suppress(FencedError):
            writer = output.open(sink, token)
            for batch, frame in enumerate(frames):
                writer.write(frame, number(batch))

    threads = [threading.Thread(target=own, args=[token]) for token in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own(4)
    assert rows(place) == plain(row for batch in range(4) for row in sales(batch, 3))


def test_others_may_write_to_the_table(
    output: Bench, sink: DeltaSink, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = output.open(sink, 1)
    other = pa.Table.from_pylist([{"id": -1, "city": "x", "amount": 1}], schema=Sale.arrow_schema())
    with meanwhile(monkeypatch, module, POINTS[0], lambda: write_deltalake(str(place), other, mode="append")):
        writer.write(output.frame(sales(0)), number(0))
    output.open(sink, 1, output="second").write(output.frame(sales(5)), number(0))
    assert rows(place) == plain([(-1, "x", 1), *sales(0), *sales(5)])


def test_batches_are_remembered_across_checkpoints_of_the_log(
    output: Bench, sink: DeltaSink, place: Path
) -> None:
    writer = output.open(sink, 1)
    writer.write(output.frame(sales(0)), number(0))
    table = DeltaTable(place)
    table.create_checkpoint()
    for name in sorted((place / "_delta_log").glob("0*.json")):
        name.unlink()
    again = output.open(sink, 1)
    again.write(output.frame(sales(0)), number(0))
    with pytest.raises(StreamMismatch, match="gap"):
        again.write(output.frame(sales(3)), number(3))
    with pytest.raises(StreamMismatch, match="nothing of epoch 9"):
        again.write(output.frame(sales(0)), number(0, epoch=9))
    assert rows(place) == plain(sales(0))


def test_a_checkpoint_that_went_back_is_noticed(output: Bench, sink: DeltaSink, place: Path) -> None:
    """Its batches have the numbers of old ones again, with rows of later epochs."""
    writer = output.open(sink, 1)
    for batch in range(3):
        writer.write(output.frame(sales(batch)), number(batch, epoch=5))
    writer.write(output.frame(sales(1)), number(1, epoch=5))
    with pytest.raises(StreamMismatch, match="has batch 1 but nothing of epoch 6"):
        output.open(sink, 2).write(output.frame(sales(7)), number(1, epoch=6))
    assert rows(place) == plain(sales(0) + sales(1) + sales(2))


class Event(Table):
    id: int
    day: date
    kind: str | None
    at: datetime
    money: Annotated[Decimal, Precision(18, 4)]
    tags: list[str]
    sale: Sale | None


def event(n: int) -> tuple[object, ...]:
    return (
        n,
        date(2024, 1, 1 + n % 3),
        [None, "a/b=c d", "ü"][n % 3 if n % 2 else 1],
        datetime(2024, 1, 1, 0, 0, n, 123456, tzinfo=UTC),
        Decimal(n) / 7 // Decimal("0.0001") * Decimal("0.0001"),
        ["x"] * (n % 3),
        None if n % 2 else {"id": n, "city": "c", "amount": None},
    )


def test_a_partitioned_table(output: Bench, place: Path) -> None:
    sink = DeltaSink(str(place), partition_by=("day", "kind"))
    writer = output.open(sink, 1, table=Event)
    wanted = [event(n) for n in range(20)]
    writer.write(output.frame(wanted, Event), number(0))
    table = DeltaTable(place)
    found = table.to_pyarrow_table().select(Event.arrow_schema().names).sort_by("id")
    assert [tuple(row.values()) for row in found.to_pylist()] == wanted
    one_day = table.to_pyarrow_table(filters=[("day", "=", date(2024, 1, 2))])
    assert one_day.num_rows == sum(row[1] == date(2024, 1, 2) for row in wanted)
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert {action["partition.kind"] for action in actions} == {None, "a/b=c d", "ü"}


def test_files_are_left_out_by_their_statistics(output: Bench, sink: DeltaSink, place: Path) -> None:
    writer = output.open(sink, 1)
    for batch in range(2):
        writer.write(output.frame(sales(batch)), number(batch))
    actions = pa.table(DeltaTable(place).get_add_actions(flatten=True)).to_pylist()
    assert sum(action["num_records"] for action in actions) == 20
    assert {action["min.id"] // 1000 for action in actions} == {0, 1}
    assert all(action["min.id"] // 1000 == action["max.id"] // 1000 for action in actions)
    assert sum(action["null_count.amount"] for action in actions) == 6


def test_bounds_hold_also_where_they_are_rounded() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("text", pa.string()), ("long", pa.string())])
    at = [datetime(2024, 1, 1, 0, 0, 0, 1999, tzinfo=UTC), datetime.max.replace(tzinfo=UTC), None]
    statistics = Statistics(schema)
    statistics.add(pa.table({"at": at[:1], "text": ["b"], "long": ["x" * 33]}, schema=schema))
    statistics.add(pa.table({"at": [None], "text": ["a"], "long": [None]}, schema=schema))
    found = json.loads(statistics.encode())
    assert found == {
        "numRecords": 2,
        "minValues": {"at": "2024-01-01T00:00:00.001Z", "text": "a"},
        "maxValues": {"at": "2024-01-01T00:00:00.002Z", "text": "b"},
        "nullCount": {"at": 1, "text": 0, "long": 1},
    }
    statistics.add(pa.table({"at": at[1:], "text": [None, None], "long": [None, None]}, schema=schema))
    assert json.loads(statistics.encode())["maxValues"]["at"].startswith("9999-12-31T23:59:59.999")


def test_a_batch_is_cut_where_its_partition_changes() -> None:
    batch = pa.record_batch(
        {"a": [1, 1, None, None, 2], "b": [True, False, False, False, False], "c": [*range(5)]}
    )
    found = [(dict(values), piece.to_pydict()) for values, piece in cut(batch, ("a", "b"))]
    assert found == [
        ({"a": "1", "b": "true"}, {"c": [0]}),
        ({"a": "1", "b": "false"}, {"c": [1]}),
        ({"a": None, "b": "false"}, {"c": [2, 3]}),
        ({"a": "2", "b": "false"}, {"c": [4]}),
    ]


def test_an_empty_text_is_no_partition(output: Bench, place: Path) -> None:
    writer = output.open(DeltaSink(str(place), partition_by=("city",)), 1)
    with pytest.raises(StreamError, match="city is an empty text"):
        writer.write(output.frame([(1, "a", 1), (2, "", 1)]), number(0))
    assert rows(place) == []


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("nothing",), "not a field"),
        (("at",), "which is timestamp"),
        (("id", "day", "kind", "at", "money", "tags", "sale"), "which is"),
    ],
)
def test_partitions_that_make_no_sense(
    output: Bench, place: Path, names: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        output.open(DeltaSink(str(place), partition_by=names), 1, table=Event)
    assert not place.exists()


def test_a_table_that_does_not_fit_is_refused(output: Bench, sink: DeltaSink, place: Path) -> None:
    schema = pa.schema(
        [("id", pa.string()), pa.field("amount", pa.int64(), False), pa.field("more", pa.int64(), False)]
    )
    DeltaTable.create(place, schema, partition_by=["more"])
    with pytest.raises(StreamMismatch) as caught:
        output.open(sink, 1)
    text = str(caught.value)
    for reason in (
        "id is string there and long here",
        "no column city",
        "amount may not be null there",
        "needs a column more",
        "partitioned by (more), not by ()",
    ):
        assert reason in text
    assert DeltaTable(place).version() == 0


@pytest.mark.parametrize(
    "there",
    ["interval day to second", "variant", {"type": "array", "elementType": "variant", "containsNull": True}],
    ids=["interval", "variant", "array"],
)
def test_a_type_that_looks_like_another_in_arrow_is_refused(place: Path, there: object) -> None:
    field = {"name": "x", "type": there, "nullable": True, "metadata": {}}
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": [field]}))
    table = DeltaTable.create(place, schema)
    with pytest.raises(StreamMismatch, match=r"x is .* there and"):
        check_table(table, pa.schema(schema.to_arrow()), ())


def test_a_table_with_rules_of_its_own_is_refused(output: Bench, sink: DeltaSink, place: Path) -> None:
    output.open(sink, 1)
    DeltaTable(place).alter.add_constraint({"positive": "id >= 0"})
    with pytest.raises(StreamMismatch, match=r"delta\.constraints\.positive"):
        output.open(sink, 2)


def test_a_table_with_more_columns_is_fine(output: Bench, sink: DeltaSink, place: Path) -> None:
    schema = Sale.arrow_schema().append(pa.field("note", pa.string()))
    DeltaTable.create(place, schema)
    output.open(sink, 1).write(output.frame(sales(0)), number(0))
    assert rows(place) == plain(sales(0))
    assert DeltaTable(place).schema().to_arrow().names == ["id", "city", "amount", "note"]


def test_rows_that_do_not_fit_are_refused(
    output: Bench, sink: DeltaSink, place: Path, spark: SparkSession
) -> None:
    writer = output.open(sink, 1)
    with pytest.raises(NullInField, match=r"sale\.city"):
        writer.write(spark.createDataFrame([(1, None, 2)], "id long, city string, amount long"), number(0))
    assert rows(place) == []


def test_a_location_that_cannot_be_written_is_refused(output: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Not a directory"):
        output.open(DeltaSink(str(tmp_path / "file" / "table")), 1)


def test_a_full_disk_leaves_nothing_half_done(output: Bench, tmp_path: Path) -> None:
    with tiny_disk(tmp_path) as disk:
        place = disk / "table"
        writer = output.open(DeltaSink(str(place)), 1)
        writer.write(output.frame(sales(0)), number(0))
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(StorageFull):
            writer.write(output.frame(sales(1)), number(1))
        assert rows(place) == plain(sales(0))
        filler.unlink()
        writer.write(output.frame(sales(1)), number(1))
        assert rows(place) == plain(sales(0) + sales(1))


def test_it_is_described(place: Path) -> None:
    sink = DeltaSink(str(place), partition_by=("city",))
    assert sink.describe() == {"kind": "delta", "location": str(place), "partition by": "city"}
    assert sink.modes == {"append"}

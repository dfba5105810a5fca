"""Streams over journals: what comes out, what is waited for, and what is told when something is wrong."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from bench import procfs
from penstock import Stream, Table
from penstock.cli.app import penstock
from penstock.config import StreamConfig
from penstock.errors import StreamError
from penstock.journals import JournalWriter
from penstock.sinks import ParquetSink
from penstock.sources import JournalSource
from penstock.streams.api.handle import StreamHandle
from penstock.streams.views import frontiers
from tests.streams.fleet import with_settings
from tests.streams.station import Station

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, PAYMENTS = "shop/orders/pivot=00", "shop/payments/pivot=00"
Start = Callable[..., Station]


class Orders(Table):
    order: int
    total: int


class Payments(Table):
    order: int
    amount: int


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "journals").mkdir()
    return tmp_path / "journals"


@pytest.fixture
def writer(root: Path) -> Iterator[JournalWriter]:
    with JournalWriter(root, sync=False) as writer:
        yield writer


@pytest.fixture
def start(spark: SparkSession, root: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a stream over orders and payments, once."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    started: list[Station] = []

    def begin(settings: StreamConfig | None = None, **options: Any) -> Station:
        stream = Stream("shop")
        for name, table in {"orders": Orders, "payments": Payments}.items():
            source = JournalSource(root, table, prefix=f"shop/{name}/", key=["/order"], **options)
            stream.output(name, stream.source(name, source), ParquetSink())
        station = Station(spark, stream, tmp_path, settings or with_settings())
        started.append(station)
        station.start()
        return station

    yield begin
    for station in started:
        station.close()


def place(writer: JournalWriter, numbers: range, payments: int = 2) -> None:
    for number in numbers:
        with writer.transaction() as transaction:
            transaction.append(ORDERS, [{"order": number, "total": 10 * payments}])
            transaction.append(PAYMENTS, [{"order": number, "amount": 10} for _ in range(payments)])


def rows(station: Station) -> int:
    return station.log.view().rows


def by_source(station: Station, epoch: int | None = None) -> dict[str, list[int]]:
    """The orders that are visible, by source."""
    found: dict[str, list[int]] = {"orders": [], "payments": []}
    for each in station.log.entries(0, epoch):
        for brought in each.brought:
            for file in brought.files(station.storage):
                with station.storage.open(file.record.path) as opened:
                    found[file.source] += pa.ipc.open_file(opened).read_all()["order"].to_pylist()
    return found


def test_both_sides_of_a_transaction_are_there_in_the_same_epoch(start: Start, writer: JournalWriter) -> None:
    place(writer, range(20))
    station = start(with_settings(max_bytes=2 << 10))
    place(writer, range(20, 60))
    station.until(lambda: rows(station) == 180, "all documents")
    for epoch in station.log.entries(0):
        found = by_source(station, epoch.number)
        assert sorted(found["payments"]) == sorted(2 * found["orders"])
    station.until(lambda: shown(station, "payments") == 120, "the payments as an output")
    station.until(lambda: shown(station, "orders") == 60, "the orders as an output")
    assert sorted(station.output("orders")["order"].to_pylist()) == list(range(60))


def shown(station: Station, output: str) -> int:
    """How many rows an output has; none as long as it was never run."""
    try:
        return int(station.output(output).num_rows)
    except StreamError:
        return 0


def test_sql_at_any_epoch_sees_whole_transactions(
    spark: SparkSession, start: Start, writer: JournalWriter
) -> None:
    station = start(with_settings(max_bytes=1 << 10))
    place(writer, range(30))
    station.until(lambda: rows(station) == 90, "all documents")
    with StreamHandle("shop", station.config.store, station.config.storage) as shop:
        epochs = shop.epochs()
        for epoch in (epochs[0], epochs[-1]):
            with (
                shop.rows(spark, "orders", epoch=epoch) as orders,
                shop.rows(spark, "payments", epoch=epoch) as payments,
            ):
                paid = payments.groupBy("order").sum("amount")
                wrong = orders.join(paid, "order", "full").where("total IS DISTINCT FROM `sum(amount)`")
                assert wrong.count() == 0
                assert orders.count() > 0


def test_what_a_transaction_waits_for_is_told_by_name(
    start: Start, root: Path, writer: JournalWriter
) -> None:
    place(writer, range(1))
    with pytest.raises(Interrupted):
        interrupted(writer)
    first = next(ack for ack in writer.pending_acks if ack.journal == ORDERS)
    with JournalWriter(root) as other:
        other.recover([first])
    station = start(with_settings(hint_patience=0.5))
    told = station.until(
        lambda: [e for e in station.told("problem") if "wait for acks" in e.text], "word about the hint"
    )
    assert PAYMENTS in told[0].text and f"{writer.producer:012x}" in told[0].text
    clock = next(ack.stamp.clock for ack in writer.pending_acks if ack.journal == PAYMENTS)
    command = f"penstock journal ack {root} {PAYMENTS} --producer {writer.producer:012x} --clock {clock}"
    assert command in told[0].text
    assert 7 not in by_source(station)["orders"]
    view = frontiers.look(station.store, station.storage, "shop")
    assert [(journal, producer) for journal, producer, _ in view.awaited] == [
        (f"payments/{PAYMENTS}", writer.producer)
    ]
    assert view.waiting > 0
    assert CliRunner().invoke(penstock, command.split()[1:]).exit_code == 0
    station.until(lambda: by_source(station) == {"orders": [0, 7], "payments": [0, 0, 7]}, "the transaction")
    assert frontiers.look(station.store, station.storage, "shop").behind == 0


class Interrupted(Exception):
    pass


def interrupted(writer: JournalWriter) -> None:
    """A transaction whose acks are not written."""
    with writer.transaction() as transaction:
        transaction.append(ORDERS, [{"order": 7, "total": 5}])
        transaction.append(PAYMENTS, [{"order": 7, "amount": 5}])
        transaction.prepare()
        raise Interrupted


def test_documents_come_through_a_queue_that_is_too_small_for_them(
    start: Start, writer: JournalWriter
) -> None:
    settings = with_settings(queue_bytes=24 << 10, max_bytes=4 << 10, retain_bytes=1 << 10, retain_for=0.1)
    station = start(settings)
    place(writer, range(200))
    most = 0

    def done() -> bool:
        nonlocal most
        files = [size for path, size in station.storage.list(station.layout.root) if path.endswith(".arrow")]
        most = max(most, sum(files))
        return rows(station) == 600

    station.until(done, "all documents", 120)
    assert most < 2 * settings.queue_bytes


def test_journals_move_to_an_instance_that_joins(start: Start, writer: JournalWriter) -> None:
    station = start(with_settings(max_bytes=2 << 10))
    place(writer, range(20))
    station.until(lambda: rows(station) == 60, "the first documents")
    station.start("i2")
    station.until(lambda: station.seats() == 2, "a second seat")
    place(writer, range(20, 80))
    station.until(lambda: rows(station) == 240, "all documents")
    found = by_source(station)
    assert sorted(found["orders"]) == list(range(80))
    assert sorted(found["payments"]) == sorted(2 * list(range(80)))


def test_a_line_that_is_no_document_is_told_with_its_place(
    start: Start, root: Path, writer: JournalWriter
) -> None:
    place(writer, range(2))
    writer.roll(ORDERS)
    begin = max(int(path.name[17:33], 16) for path in (root / ORDERS).glob("0*-*"))
    data = b'{"order": 1\n'
    name = f"{begin:016x}-{begin + len(data):016x}-{hashlib.sha1(data).hexdigest()}.raw"
    (root / ORDERS / name).write_bytes(data)
    station = start()
    told = station.until(
        lambda: [e for e in station.told("problem") if "not JSON" in e.text], "word about the line"
    )
    assert f"journal {ORDERS}, offset {begin}" in told[0].text
    assert rows(station) == 0


def test_ten_thousand_journals(start: Start, root: Path) -> None:
    count = 10_000
    fragments(root, count)
    station = start(with_settings(list_every=0.5))
    station.until(lambda: rows(station) == 2 * count, "all documents", 180)
    assert len(frontiers.look(station.store, station.storage, "shop").journals) == count
    workers = [pid for name in ("python", "python3") for pid in procfs.descendants(os.getpid(), name)]
    assert workers and max(map(procfs.peak, workers)) < 500_000_000


def fragments(root: Path, count: int) -> None:
    """So many journals with two documents each."""
    from penstock.journals.format.documents import encode_document
    from penstock.journals.format.uuids import Stamp, Ticker, new_producer

    producer, ticker = new_producer(), Ticker()
    for number in range(count):
        data = b"".join(
            encode_document(Stamp(producer, ticker.tick()), {"order": number, "total": 1}) for _ in range(2)
        )
        folder = root / f"shop/orders/n={number}/pivot=00"
        folder.mkdir(parents=True)
        (folder / f"{0:016x}-{len(data):016x}-{hashlib.sha1(data).hexdigest()}.raw").write_bytes(data)

"""Rows as records of Kafka, against librdkafka's mock broker: at least once, and repeats can be told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from penstock.errors import (
    ConfigError,
    InputError,
    NullInField,
    TransientError,
    TypeMismatch,
    UnknownField,
    UsageError,
)
from penstock.sinks.base import Batch, Mode, Target
from penstock.sinks.kafka import KafkaSink
from penstock.sources.kafka.source import KafkaSource
from penstock.types.tables import Precision, Table
from servers.kafka import Kafka
from servers.packages import Missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERS = count(1)
PARTITIONS = 3


class Sale(Table):
    id: int
    city: str | None
    amount: int | None


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with started() as server:
        yield server


def started() -> Kafka:
    try:
        return Kafka()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def topic(broker: Kafka) -> str:
    name = f"out-{next(NUMBERS)}"
    broker.create_topic(name, PARTITIONS)
    return name


def target(
    spark: SparkSession, table: type[Table] = Sale, mode: Mode = "append", keys: tuple[str, ...] = ()
) -> Target:
    """An output; a sink that remembers nothing needs neither store nor storage."""
    nothing: Any = None
    return Target("sales", "s1", "out", 1, table, mode, keys, nothing, nothing, spark)


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], table: type[Table] = Sale) -> DataFrame:
    names = table.arrow_schema().names
    nullable = pa.schema([(f.name, f.type) for f in table.arrow_schema()])
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(found, schema=nullable))


def records(broker: Kafka, topic: str) -> list[Any]:
    """All that is in the topic, partition by partition."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.servers, "group.id": "t", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    found: list[Any] = []
    ends = 0
    while ends < PARTITIONS:
        message: Any = consumer.poll(20)
        assert message is not None, "the broker does not answer"
        if message.error() is None:
            found.append(message)
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ends += 1
    consumer.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def identity(message: Any) -> tuple[tuple[str, bytes], ...]:
    return tuple(message.headers())


def test_rows_become_records_with_key_value_and_headers(
    broker: Kafka, topic: str, spark: SparkSession
) -> None:
    writer = KafkaSink(broker.servers, topic, key=Sale.city).open(target(spark))
    writer.write(frame(spark, [(1, "Bern", 5), (2, None, None)]), Batch(7, 9))
    one, two = sorted(records(broker, topic), key=lambda m: json.loads(m.value())["id"])
    assert (one.key(), json.loads(one.value())) == (b"Bern", {"id": 1, "city": "Bern", "amount": 5})
    assert (two.key(), json.loads(two.value())) == (None, {"id": 2, "city": None, "amount": None})
    headers = dict(one.headers())
    assert headers.pop("penstock-row").endswith(b"-1")
    assert headers == {"penstock-stream": b"sales/s1", "penstock-output": b"out", "penstock-batch": b"7"}


def test_a_repeated_batch_has_the_same_identities_in_any_order(
    broker: Kafka, topic: str, spark: SparkSession
) -> None:
    rows = [(n, f"city {n % 5}", n % 3) for n in range(200)] + [(7, "twin", 1)] * 4
    writer = KafkaSink(broker.servers, topic, key="city").open(target(spark))
    writer.write(frame(spark, rows).repartition(2), Batch(0, 1))
    writer.write(frame(spark, rows[::-1]).repartition(5), Batch(0, 1))
    found = records(broker, topic)
    assert len(found) == 2 * len(rows)
    assert set(Counter(map(identity, found)).values()) == {2}
    once = {identity(m): json.loads(m.value()) for m in found}
    assert Counter((r["id"], r["city"], r["amount"]) for r in once.values()) == Counter(rows)
    for message in found:
        assert once[identity(message)] == json.loads(message.value())


def test_equal_rows_of_other_batches_are_other_rows(broker: Kafka, topic: str, spark: SparkSession) -> None:
    writer = KafkaSink(broker.servers, topic).open(target(spark))
    for number in range(2):
        writer.write(frame(spark, [(1, "x", 1)]), Batch(number, 1))
    assert len({identity(m) for m in records(broker, topic)}) == 2


def test_rows_of_a_key_stay_in_one_partition_and_in_order(
    broker: Kafka, topic: str, spark: SparkSession
) -> None:
    rows = [(n, f"city {n % 7}", n) for n in range(300)]
    writer = KafkaSink(broker.servers, topic, key="city").open(target(spark))
    writer.write(frame(spark, rows).coalesce(1), Batch(0, 1))
    by_key: dict[bytes, list[tuple[int, int]]] = {}
    for message in records(broker, topic):
        by_key.setdefault(message.key(), []).append((message.partition(), json.loads(message.value())["id"]))
    for key, found in by_key.items():
        assert len({partition for partition, _ in found}) == 1
        assert [n for _, n in found] == [n for n, city, _ in rows if city.encode() == key]


class Everything(Table):
    n: int
    real: float | None
    price: Annotated[Decimal, Precision(20, 10)] | None
    text: str | None
    data: bytes | None
    flag: bool | None
    day: date | None
    at: datetime | None
    some: list[int] | None


def test_a_source_reads_back_what_the_sink_wrote(broker: Kafka, topic: str, spark: SparkSession) -> None:
    at = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)
    rows: list[tuple[Any, ...]] = [
        (1, 0.1, Decimal("0.0000000001"), 'ä "\n', b"\x00\xff", True, date(2024, 2, 29), at, [1, 2]),
        (2, 1e300, Decimal("1234567890.5"), "", b"", False, date(1969, 1, 1), at.replace(microsecond=0), []),
        (3, *[None] * 8),
    ]
    KafkaSink(broker.servers, topic).open(target(spark, Everything)).write(
        frame(spark, rows, Everything), Batch(0, 1)
    )
    source = KafkaSource(broker.servers, topic, Everything)
    found = []
    for name in source.list_parts():
        part = source.build_part(name, None)
        while (batch := part.poll(100)) is not None:
            found += [tuple(row.values()) for row in batch.to_pylist()]
        part.close()
    assert sorted(found, key=lambda row: int(row[0])) == rows


class Raw(Table):
    name: int
    body: bytes | None


def test_a_field_as_value_and_a_number_as_key(broker: Kafka, topic: str, spark: SparkSession) -> None:
    writer = KafkaSink(broker.servers, topic, value=Raw.body, key=Raw.name).open(target(spark, Raw))
    writer.write(frame(spark, [(-3, b"\x00\xff"), (4, None), (5, b"")], Raw), Batch(0, 1))
    found = {m.key(): m.value() for m in records(broker, topic)}
    assert found[b"-3"] == b"\x00\xff"
    assert found[b"4"] is None
    assert len({identity(m) for m in records(broker, topic)}) == 3


def test_updates_have_the_key_of_the_output(broker: Kafka, topic: str, spark: SparkSession) -> None:
    sink = KafkaSink(broker.servers, topic)
    sink.open(target(spark, mode="update", keys=("id",))).write(frame(spark, [(42, "x", 1)]), Batch(0, 1))
    assert [m.key() for m in records(broker, topic)] == [b"42"]
    with pytest.raises(UsageError, match="a record has one"):
        sink.open(target(spark, mode="update", keys=("id", "city")))


def test_a_batch_without_rows_sends_nothing(broker: Kafka, topic: str, spark: SparkSession) -> None:
    KafkaSink(broker.servers, topic).open(target(spark)).write(frame(spark, []), Batch(0, 1))
    assert records(broker, topic) == []


def test_a_null_that_is_not_allowed_is_named(broker: Kafka, topic: str, spark: SparkSession) -> None:
    writer = KafkaSink(broker.servers, topic).open(target(spark))
    with pytest.raises(NullInField, match="id is null"):
        writer.write(frame(spark, [(None, "x", 1)]), Batch(0, 1))


def test_what_must_be_mended_is_told_when_the_sink_is_opened(
    broker: Kafka, topic: str, spark: SparkSession
) -> None:
    with pytest.raises(InputError, match="no such topic"):
        KafkaSink(broker.servers, "nowhere").open(target(spark))
    with pytest.raises(UnknownField, match="did you mean 'city'"):
        KafkaSink(broker.servers, topic, key="cty").open(target(spark))
    with pytest.raises(TypeMismatch, match=r"sale\.amount is int64"):
        KafkaSink(broker.servers, topic, value="amount").open(target(spark))
    with pytest.raises(UsageError, match="mode complete"):
        KafkaSink(broker.servers, topic).open(target(spark, mode="complete"))
    with pytest.raises(ConfigError, match=r"enable\.idempotence"):
        KafkaSink(broker.servers, topic, conf={"enable.idempotence": False})
    with pytest.raises(ConfigError, match=r"queue\.buffering"):
        KafkaSink(broker.servers, topic, conf={"queue.buffering.max.ms": "soon"}).open(target(spark))


def test_a_record_that_is_too_large_cannot_be_mended_by_trying_again(
    broker: Kafka, topic: str, spark: SparkSession
) -> None:
    writer = KafkaSink(broker.servers, topic, conf={"message.max.bytes": 2000}).open(target(spark))
    with pytest.raises(InputError, match="MSG_SIZE_TOO_LARGE"):
        writer.write(frame(spark, [(1, "x" * 5000, 1)]), Batch(0, 1))


def test_a_broker_that_is_gone_fails_the_batch_which_can_be_repeated(spark: SparkSession) -> None:
    with started() as broker:
        broker.create_topic("t", PARTITIONS)
        sink = KafkaSink(broker.servers, "t", conf={"delivery.timeout.ms": 1500})
        writer = sink.open(target(spark))
        rows = [(n, "x", n) for n in range(20)]
        broker.down()
        with pytest.raises(TransientError):
            writer.write(frame(spark, rows), Batch(0, 1))
        broker.up()
        writer.write(frame(spark, rows), Batch(0, 1))
        assert {json.loads(m.value())["id"] for m in records(broker, "t")} == set(range(20))


def test_it_tells_what_it_is_without_secrets() -> None:
    sink = KafkaSink("b:1", "t", key=Sale.id, conf={"sasl.password": "horse"})
    assert sink.describe() == {"kind": "kafka", "servers": "b:1", "topic": "t", "value": "json", "key": "id"}
    assert "horse" not in f"{sink!r}{sink}{sink.describe()}"
    assert not KafkaSink.exactly_once
    assert KafkaSink.modes == {"append", "update"}

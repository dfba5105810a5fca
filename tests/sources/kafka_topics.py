"""Topics to read, on librdkafka's mock broker in a process of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import confluent_kafka
import pytest

from penstock.sources import state as states
from penstock.sources.kafka.source import KafkaPart
from penstock.types.tables import Table
from servers.kafka import Kafka
from servers.packages import Missing

NUMBERS = count(1)
PATIENCE = 30.0


class Items(Table):
    n: int


def started() -> Kafka:
    try:
        return Kafka()
    except Missing as missing:
        pytest.skip(str(missing))


def new_topic(broker: Kafka, partitions: int = 1) -> str:
    name = f"topic-{next(NUMBERS)}"
    broker.create_topic(name, partitions)
    return name


def send(broker: Kafka, topic: str, values: list[Any], partition: int = 0, **options: Any) -> None:
    failed: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.servers})
    for value in values:
        body = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        producer.produce(
            topic,
            value=body,
            partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            **options,
        )
        producer.poll(0)
    assert producer.flush(20) == 0
    assert not failed


def items(first: int, last: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(first, last + 1)]


def drain(part: KafkaPart, limit: int = 1000) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while (batch := part.poll(limit)) is not None:
        assert 0 < batch.num_rows <= limit
        rows += batch.to_pylist()
    return rows


def numbers(part: KafkaPart, limit: int = 1000) -> list[int]:
    return [row["n"] for row in drain(part, limit)]


def eventually(part: KafkaPart, rows: int) -> list[int]:
    """The numbers of so many rows, which may take some polls to arrive."""
    seen: list[int] = []
    deadline = time.monotonic() + PATIENCE
    while len(seen) < rows:
        assert time.monotonic() < deadline, f"only {seen} came"
        seen += numbers(part)
    return seen


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.02)


def stored(part: KafkaPart) -> Any:
    return states.decode("p", states.encode("p", part.snapshot()))

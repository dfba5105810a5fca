"""Kafka topics as a source, against librdkafka's mock broker in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.errors import (
    ConfigError,
    InputError,
    PenstockError,
    TransientError,
    UsageError,
)
from penstock.sources import conformance
from penstock.sources.kafka import shared_consumer
from penstock.sources.kafka import source as kafka
from penstock.sources.kafka.client import as_ours
from penstock.sources.kafka.shared_consumer import SharedConsumer
from penstock.sources.kafka.source import KafkaSource
from servers.kafka import Kafka
from tests.sources.kafka_topics import (
    NUMBERS,
    PATIENCE,
    Items,
    eventually,
    items,
    new_topic,
    numbers,
    send,
    started,
    stored,
    until,
)

pytestmark = pytest.mark.usefixtures("kafka_parts")


@pytest.fixture(scope="module")
def steady(broker: Kafka) -> str:
    topic = new_topic(broker, 2)
    for partition in range(2):
        send(broker, topic, items(1, 60), partition)
    return topic


@pytest.mark.parametrize("name", conformance.NAMES)
def test_conformance(broker: Kafka, steady: str, name: str) -> None:
    conformance.check(KafkaSource(broker.servers, steady, Items), only=name, quiet=0.05)


def test_records_come_in_order_and_new_ones_later(broker: Kafka) -> None:
    topic = new_topic(broker)
    send(broker, topic, items(1, 500))
    part = KafkaSource(broker.servers, topic, Items).build_part(f"{topic}[0]", None)
    assert eventually(part, 500) == list(range(1, 501))
    assert part.poll(10) is None
    send(broker, topic, items(501, 503))
    assert eventually(part, 3) == [501, 502, 503]
    assert part.snapshot().items() >= {"offset": 503, "skipped": 0}.items()
    assert not part.is_finished()


def test_what_was_polled_after_the_last_snapshot_comes_again_after_a_kill(broker: Kafka) -> None:
    topic = new_topic(broker)
    send(broker, topic, items(1, 60))
    source = KafkaSource(broker.servers, topic, Items)
    committed: list[int] = []
    state = None
    for round_ in range(12):
        part = source.build_part(f"{topic}[0]", state)
        batch = part.poll(10)
        if batch is None or round_ % 2:
            continue  # killed: neither rows nor state were committed, nothing was closed
        committed += batch.column("n").to_pylist()
        state = stored(part)
    assert committed == list(range(1, 61))


def test_a_process_that_is_killed_leaves_nothing_behind(broker: Kafka) -> None:
    topic = new_topic(broker)
    send(broker, topic, items(1, 20))
    program = (
        "import os, signal, sys\n"
        "from penstock.sources import KafkaSource\n"
        "from tests.sources.kafka_topics import Items\n"
        "part = KafkaSource(sys.argv[1], sys.argv[2], Items).build_part(sys.argv[2] + '[0]', None)\n"
        "rows = part.poll(5)\n"
        "print(part.snapshot()['offset'], flush=True)\n"
        "part.poll(9)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", program, broker.servers, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    offset = int(done.stdout)
    part = KafkaSource(broker.servers, topic, Items).build_part(
        f"{topic}[0]", {"offset": offset, "skipped": 0}
    )
    assert eventually(part, 20 - offset) == list(range(offset + 1, 21))


def test_parts_of_one_process_share_a_consumer_and_stay_apart(broker: Kafka) -> None:
    topic = new_topic(broker, 8)
    for partition in range(8):
        send(broker, topic, items(partition * 1000, partition * 1000 + 299), partition)
    source = KafkaSource(broker.servers, topic, Items)
    parts = {n: source.build_part(f"{topic}[{n}]", None) for n in range(8)}
    seen: dict[int, list[int]] = {n: [] for n in parts}
    deadline = time.monotonic() + PATIENCE
    while any(len(rows) < 300 for rows in seen.values()) and time.monotonic() < deadline:
        for n, part in parts.items():
            batch = part.poll(37)
            seen[n] += [] if batch is None else batch.column("n").to_pylist()
        # One of them moves away and comes back, which does not touch the others.
        parts[3].close()
        parts[3] = source.build_part(f"{topic}[3]", stored(parts[3]))
    assert len(SharedConsumer._all) == 1
    assert seen == {n: list(range(n * 1000, n * 1000 + 300)) for n in parts}


def test_a_part_that_nobody_reads_is_paused_and_loses_nothing(
    broker: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_consumer, "_BUFFERED", 50)
    monkeypatch.setattr(shared_consumer, "_READ_AT_ONCE", 20)
    topic = new_topic(broker, 2)
    source = KafkaSource(broker.servers, topic, Items)
    idle, busy = (source.build_part(f"{topic}[{n}]", None) for n in range(2))
    assert idle.poll(1) is None
    send(broker, topic, items(1, 2000), 0)
    send(broker, topic, items(1, 2000), 1)
    assert eventually(busy, 2000) == list(range(1, 2001))
    shared = idle._shared
    assert shared is not None
    assert len(shared.buffer) < 200
    assert eventually(idle, 2000) == list(range(1, 2001))


# what there is


def test_parts_are_partitions_and_new_topics_of_a_pattern_are_found(broker: Kafka) -> None:
    prefix = f"find-{next(NUMBERS)}"
    source = KafkaSource(broker.servers, f"^{prefix}-.*", Items)
    assert source.list_parts() == []
    broker.create_topic(f"{prefix}-b", 1)
    assert source.list_parts() == [f"{prefix}-b[0]"]
    broker.create_topic(f"{prefix}-a", 2)
    assert source.list_parts() == [f"{prefix}-a[0]", f"{prefix}-a[1]", f"{prefix}-b[0]"]
    assert source.grows


def test_new_partitions_are_found_and_read_while_others_go_on(broker: Kafka) -> None:
    """The mock broker adds partitions to no topic, but an empty one can be made anew with more."""
    topic = new_topic(broker, 1)
    source = KafkaSource(broker.servers, topic, Items)
    assert source.list_parts() == [f"{topic}[0]"]
    broker.delete_topic(topic)
    broker.create_topic(topic, 3)
    assert source.list_parts() == [f"{topic}[{n}]" for n in range(3)]
    old = source.build_part(f"{topic}[0]", None)
    send(broker, topic, items(1, 3), 0)
    assert eventually(old, 3) == [1, 2, 3]
    new = source.build_part(f"{topic}[2]", None)
    send(broker, topic, items(4, 6), 2)
    send(broker, topic, items(7, 8), 0)
    assert eventually(new, 3) == [4, 5, 6]
    assert eventually(old, 2) == [7, 8]


def test_a_topic_that_is_not_there_is_told(broker: Kafka) -> None:
    source = KafkaSource(broker.servers, ["nowhere"], Items)
    with pytest.raises(InputError, match="there is no topic nowhere"):
        source.list_parts()
    with pytest.raises(InputError, match=r"nowhere\[0\]"):
        source.build_part("nowhere[0]", None)
    with pytest.raises(UsageError, match="TOPIC"):
        source.build_part("nowhere", None)


# where it starts


def test_latest_is_fixed_when_the_part_is_built(broker: Kafka) -> None:
    topic = new_topic(broker)
    send(broker, topic, items(1, 5))
    source = KafkaSource(broker.servers, topic, Items, start="latest")
    part = source.build_part(f"{topic}[0]", None)
    state = stored(part)
    assert state.items() >= {"offset": 5, "skipped": 0}.items()
    send(broker, topic, items(6, 8))
    for _ in range(2):
        assert eventually(source.build_part(f"{topic}[0]", state), 3) == [6, 7, 8]
    assert eventually(part, 3) == [6, 7, 8]


def test_a_time_is_the_first_record_that_is_not_older(broker: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock broker knows no times: its answer is played here, and what was asked is looked at."""
    topic = new_topic(broker)
    send(broker, topic, items(1, 5))
    asked: list[int] = []

    class Played:
        answer = 3

        def offsets_for_times(self, partitions: list[Any], timeout: float) -> list[Any]:
            asked.append(partitions[0].offset)
            return [SimpleNamespace(offset=self.answer, error=None)]

        def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
            return 0, 5

        def close(self) -> None: ...

    start = datetime(2026, 1, 1, tzinfo=UTC)
    source = KafkaSource(broker.servers, topic, Items, start=start)
    with monkeypatch.context() as patched:
        patched.setattr(kafka, "consumer", lambda settings: Played())
        part = source.build_part(f"{topic}[0]", None)
        patched.setattr(Played, "answer", -1)
        assert source.build_part(f"{topic}[0]", None).snapshot()["offset"] == 5
    assert asked == [start.timestamp() * 1000] * 2
    assert eventually(part, 2) == [4, 5]


@pytest.mark.parametrize("limit", [1, 100])
def test_a_topic_that_was_made_anew_is_refused_however_many_records_it_has(broker: Kafka, limit: int) -> None:
    topic = new_topic(broker)
    send(broker, topic, items(1, 5))
    source = KafkaSource(broker.servers, topic, Items)
    part = source.build_part(f"{topic}[0]", None)
    assert eventually(part, 5) == [1, 2, 3, 4, 5]
    state = stored(part)
    # Where nothing was made anew, it goes on behind the last record.
    send(broker, topic, items(6, 7))
    part.close()
    part = source.build_part(f"{topic}[0]", state)
    assert eventually(part, 2) == [6, 7]
    part.close()
    broker.delete_topic(topic)
    broker.create_topic(topic, 1)
    send(broker, topic, items(101, 120))
    part = source.build_part(f"{topic}[0]", state)
    for _ in range(2):
        with pytest.raises(InputError, match=r"record 4 of .* the topic was made anew") as raised:
            part.poll(limit)
        assert "drop the stream" in str(raised.value.hint)
        assert part.snapshot() == state


def test_the_last_record_may_be_gone_if_the_next_one_is_there(broker: Kafka) -> None:
    topic = new_topic(broker)
    send(broker, topic, items(1, 5))
    source = KafkaSource(broker.servers, topic, Items)
    part = source.build_part(f"{topic}[0]", None)
    assert eventually(part, 5) == [1, 2, 3, 4, 5]
    state = stored(part)
    part.close()
    send(broker, topic, items(6, 9))
    broker.trim(topic, 0, 5)
    assert eventually(source.build_part(f"{topic}[0]", state), 4) == [6, 7, 8, 9]


def test_offsets_that_are_gone_are_an_error_and_never_skipped(broker: Kafka) -> None:
    topic = new_topic(broker)
    send(broker, topic, items(1, 20))
    broker.trim(topic, 0, 10)
    source = KafkaSource(broker.servers, topic, Items)
    part = source.build_part(f"{topic}[0]", {"offset": 4, "skipped": 0})
    for _ in range(2):
        with pytest.raises(
            InputError, match=r"no offset 4: it holds 10 to 19 \(records 4 to 9 are lost\)"
        ) as e:
            part.poll(10)
        assert "start=" in str(e.value.hint)
        assert part.snapshot() == {"offset": 4, "skipped": 0}
    assert eventually(source.build_part(f"{topic}[0]", None), 10) == list(range(11, 21))
    with pytest.raises(InputError, match=r"no offset 99.*made anew"):
        source.build_part(f"{topic}[0]", {"offset": 99, "skipped": 0}).poll(1)


def test_a_part_that_fails_leaves_others_alone(broker: Kafka) -> None:
    topic = new_topic(broker, 2)
    send(broker, topic, items(1, 5), 0)
    source = KafkaSource(broker.servers, topic, Items)
    good = source.build_part(f"{topic}[0]", None)
    bad = source.build_part(f"{topic}[1]", {"offset": 99, "skipped": 0})
    seen = eventually(good, 1)
    with pytest.raises(InputError):
        bad.poll(1)
    send(broker, topic, items(6, 7), 0)
    assert seen + eventually(good, 7 - len(seen)) == [1, 2, 3, 4, 5, 6, 7]


# faults


def test_a_broker_that_is_gone_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kafka, shared_consumer):
        monkeypatch.setattr(module, "ANSWER", 2.0)
    with started() as broker:
        topic = new_topic(broker, 2)
        send(broker, topic, items(1, 5))
        source = KafkaSource(broker.servers, topic, Items)
        one, other = (source.build_part(f"{topic}[{n}]", None) for n in range(2))
        assert eventually(one, 5) == [1, 2, 3, 4, 5]
        assert other.poll(1) is None
        broker.down()
        until(lambda: fails(lambda: one.poll(1)))
        assert fails(source.list_parts)
        assert fails(lambda: source.build_part(f"{topic}[0]", None))
        broker.up()
        send(broker, topic, items(6, 8))
        send(broker, topic, items(1, 2), 1)
        seen: list[int] = []
        until(lambda: not fails(lambda: seen.extend(numbers(one))) and len(seen) >= 3)
        assert seen == [6, 7, 8]
        assert eventually(other, 2) == [1, 2]
        one.close()
        other.close()


def fails(action: Callable[[], object]) -> bool:
    try:
        action()
    except TransientError:
        return True
    return False


def test_errors_are_sorted_by_whether_trying_again_helps() -> None:
    kinds: dict[int, type[PenstockError]] = {
        KafkaError._TRANSPORT: TransientError,
        KafkaError._ALL_BROKERS_DOWN: TransientError,
        KafkaError.NOT_LEADER_FOR_PARTITION: TransientError,
        KafkaError._AUTHENTICATION: InputError,
        KafkaError.TOPIC_AUTHORIZATION_FAILED: InputError,
        KafkaError.UNKNOWN_TOPIC_OR_PART: InputError,
        KafkaError._INVALID_ARG: ConfigError,
    }
    for code, kind in kinds.items():
        assert type(as_ours(KafkaError(code), "here", {})) is kind


def test_secrets_are_not_shown(broker: Kafka) -> None:
    conf = {
        "sasl.password": "horse-battery",
        "ssl.key.password": "horse-staple",
        "fetch.wait.max.ms": "horse",
    }
    source = KafkaSource(broker.servers, "t", Items, conf=conf)
    with pytest.raises(ConfigError) as caught:
        source.list_parts()
    assert "fetch.wait.max.ms" in str(caught.value)
    assert "battery" not in f"{caught.value}{source!r}"
    error = KafkaError(KafkaError._AUTHENTICATION, "horse-battery was refused")
    assert "battery" not in str(as_ours(error, "here", conf))


def test_what_names_and_states_refer_to() -> None:
    source = KafkaSource(["b:2", "a:1"], ["t", "^s"], Items, conf={"sasl.password": "horse"})
    assert source.describe() == {"servers": "a:1, b:2", "topics": "^s, t", "value": "json"}
    one = KafkaSource("a:1", "t", Items, value=lambda _: None)
    other = KafkaSource("a:1", "t", Items, value=lambda _: {})
    assert one.describe()["value"] != other.describe()["value"]

"""What records of Kafka become: rows from JSON, raw records and functions, or errors with their place."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

from penstock.errors import (
    BadInput,
    DefinitionError,
    UsageError,
)
from penstock.sources.kafka.source import KafkaHeader, KafkaRecord, KafkaSource
from penstock.types.tables import Precision, Table
from servers.kafka import Kafka
from tests.sources.kafka_topics import (
    Items,
    drain,
    items,
    new_topic,
    numbers,
    send,
    stored,
    until,
)

pytestmark = pytest.mark.usefixtures("kafka_parts")


class Everything(Table):
    n: int
    real: float | None
    price: Annotated[Decimal, Precision(12, 3)] | None
    text: str | None
    data: bytes | None
    flag: bool | None
    day: date | None
    at: datetime | None
    some: list[int] | None


def test_json_of_all_kinds(broker: Kafka) -> None:
    topic = new_topic(broker)
    full = {
        "n": 1,
        "real": 2,
        "price": 12.345,
        "text": 'ä "\n',
        "data": base64.b64encode(b"\x00\xff").decode(),
        "flag": True,
        "day": "2024-02-29",
        "at": "2024-02-29T23:00:00.123456+01:00",
        "some": [1, 2],
        "more": {"left": "out"},
    }
    pretty = json.dumps({"n": 3, "price": "1.5"}, indent=2).encode()
    send(broker, topic, [full, {"n": 2}, pretty])
    part = KafkaSource(broker.servers, topic, Everything).build_part(f"{topic}[0]", None)
    one, two, three = drain(part)
    assert one == {
        "n": 1,
        "real": 2.0,
        "price": Decimal("12.345"),
        "text": 'ä "\n',
        "data": b"\x00\xff",
        "flag": True,
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 22, 0, 0, 123456, tzinfo=UTC),
        "some": [1, 2],
    }
    assert {key for key, value in two.items() if value is not None} == {"n"}
    assert (three["n"], three["price"]) == (3, Decimal("1.500"))


BAD = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'{"n": "1"}',
    b'{"n": 1.5}',
    b'{"n": null}',
    b"{}",
    b'{"n": 1}{"n": 2}',
    b'{"n": 1, "n": 2}',
    b'{"n": 99999999999999999999}',
    b'\xff{"n": 1}',
    None,
]


@pytest.mark.parametrize("bad", BAD, ids=map(str, range(len(BAD))))
def test_a_bad_document_is_named_by_its_place(broker: Kafka, bad: bytes | None) -> None:
    topic = new_topic(broker)
    send(broker, topic, [*items(1, 5), bad, *items(6, 9)])
    part = KafkaSource(broker.servers, topic, Items).build_part(f"{topic}[0]", None)
    for _ in range(2):
        with pytest.raises(BadInput, match=rf"record 5 of {re.escape(topic)}\[0\] gives no row") as caught:
            drain(part)
        # A poll may have brought some of the records before it.
        assert part.snapshot()["offset"] <= 5 and not part.snapshot()["skipped"]
    assert "on_error='skip'" in str(caught.value.hint)


def test_bad_documents_can_be_passed_over_and_are_counted(
    broker: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(broker)
    mixed: list[Any] = []
    for n, bad in enumerate(BAD):
        mixed += [{"n": n}, bad]
    # Two broken ones that would make one whole, beside one that would make up the number.
    mixed += [b'{"n": 1', b', "m": 2}', b"{}{}", {"n": 99}]
    send(broker, topic, mixed)
    source = KafkaSource(broker.servers, topic, Items, on_error="skip")
    expected = [*range(len(BAD)), 99]
    for limit in (1, 3, 1000):
        part = source.build_part(f"{topic}[0]", None)
        assert numbers(part, limit) == expected
        assert _counted(part) == {"offset": len(mixed), "skipped": len(BAD) + 3}
    assert f"record 1 of {topic}[0]" in caplog.text
    # A count goes on from the state.
    send(broker, topic, [b"{"])
    again = source.build_part(f"{topic}[0]", stored(part))
    until(lambda: again.poll(1) is None and again.snapshot()["skipped"] == len(BAD) + 4)


def test_text_that_is_not_unicode_is_a_bad_document(broker: Kafka) -> None:
    class Texts(Table):
        text: str

    topic = new_topic(broker)
    send(broker, topic, [b'{"text": "\xff"}'])
    with pytest.raises(BadInput, match="record 0"):
        KafkaSource(broker.servers, topic, Texts).build_part(f"{topic}[0]", None).poll(1)


class Raw(Table):
    key: str | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    headers: list[KafkaHeader]


def test_raw_records(broker: Kafka) -> None:
    topic = new_topic(broker, 2)
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    stamp = int(at.timestamp() * 1000)
    send(broker, topic, [b"\x00\xff"], 1, key="k", timestamp=stamp, headers=[("a", b"1"), ("a", None)])
    send(broker, topic, [None], 1, timestamp=stamp)
    part = KafkaSource(broker.servers, topic, Raw, value="raw").build_part(f"{topic}[1]", None)
    one, two = drain(part)
    assert one == {
        "key": "k",
        "value": b"\x00\xff",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": at,
        "headers": [{"name": "a", "value": b"1"}, {"name": "a", "value": None}],
    }
    assert (two["key"], two["value"], two["offset"], two["headers"]) == (None, None, 1, [])


def test_raw_text_that_is_no_text_is_named(broker: Kafka) -> None:
    class Keyed(Table):
        key: str

    topic = new_topic(broker)
    send(broker, topic, [b""], key="fine")
    send(broker, topic, [b""], key=b"\xff")
    send(broker, topic, [b""])
    source = KafkaSource(broker.servers, topic, Keyed, value="raw", on_error="skip")
    part = source.build_part(f"{topic}[0]", None)
    assert drain(part) == [{"key": "fine"}]
    assert _counted(part) == {"offset": 3, "skipped": 2}


def counted(record: KafkaRecord) -> dict[str, object] | None:
    """Every third record is none of ours, and the one that says "bad" cannot be read."""
    assert record.value is not None
    if record.value == b"bad":
        raise ValueError("unreadable")
    return None if record.offset % 3 == 2 else {"n": int(record.value) + record.partition}


def test_a_function_makes_the_rows(broker: Kafka) -> None:
    topic = new_topic(broker)
    send(broker, topic, [b"0", b"1", b"2", b"3", b"bad", b"5", b"6"])
    source = KafkaSource(broker.servers, topic, Items, value=counted)
    with pytest.raises(BadInput, match=r"record 4 .*ValueError: unreadable"):
        drain(source.build_part(f"{topic}[0]", None))
    source = KafkaSource(broker.servers, topic, Items, value=counted, on_error="skip")
    for limit in (1, 2, 100):
        part = source.build_part(f"{topic}[0]", None)
        assert numbers(part, limit) == [0, 1, 3, 6]
        assert _counted(part) == {"offset": 7, "skipped": 1}


@pytest.mark.parametrize("value", [1.5, 1.0, Decimal("1.5")])
def test_a_fraction_that_a_function_makes_is_not_cut_off(broker: Kafka, value: object) -> None:
    topic = new_topic(broker)
    send(broker, topic, items(0, 3))

    def make(record: KafkaRecord) -> dict[str, object]:
        return {"n": value if record.offset == 2 else record.offset}

    part = KafkaSource(broker.servers, topic, Items, value=make).build_part(f"{topic}[0]", None)
    with pytest.raises(BadInput, match=rf"record 2 .*n is {re.escape(repr(value))}, declared as int64"):
        drain(part)
    source = KafkaSource(broker.servers, topic, Items, value=make, on_error="skip")
    for limit in (1, 2, 100):
        part = source.build_part(f"{topic}[0]", None)
        assert numbers(part, limit) == [0, 1, 3]
        assert _counted(part) == {"offset": 4, "skipped": 1}


def test_definitions_that_make_no_sense(broker: Kafka) -> None:
    class Odd(Table):
        value: int

    class Inner(Table):
        data: bytes

    class Nested(Table):
        inner: Inner

    with pytest.raises(DefinitionError, match="no field value of type int64"):
        KafkaSource(broker.servers, "t", Odd, value="raw")
    with pytest.raises(DefinitionError, match="inner has bytes inside"):
        KafkaSource(broker.servers, "t", Nested)
    wrong: list[dict[str, Any]] = [
        {"start": "yesterday"},
        {"start": datetime(2026, 1, 1)},
        {"on_error": "ignore"},
        {"value": "avro"},
        {"conf": {"auto.offset.reset": "earliest"}},
    ]
    for options in wrong:
        with pytest.raises(UsageError):
            KafkaSource(broker.servers, "t", Items, **options)


def _counted(part: Any) -> dict[str, Any]:
    """How far a part is, without what it knows the last record by."""
    state = dict(part.snapshot())
    state.pop("last", None)
    return state

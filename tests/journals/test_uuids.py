from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.journals.format.uuids import (
    Flag,
    Stamp,
    Ticker,
    clock_time,
    decode,
    encode,
    new_producer,
    parse_producer,
    producer_text,
    time_clock,
)

PRODUCERS = st.integers(0, (1 << 48) - 1).map(lambda n: n | 1 << 40)
STAMPS = st.builds(
    Stamp, PRODUCERS, st.integers(0, (1 << 64) - 1), st.integers(0, 1023).filter(lambda n: n & 3 != 3)
)


def test_the_layout_by_hand() -> None:
    stamp = Stamp(0x0123456789AB, 0xFEDCBA9876543217, 0x3F1)
    # 0x7 is the counter; 0xfedcba987654321 the time: high fed, middle cba9, low 87654321.
    assert encode(stamp) == "87654321-cba9-1fed-9ff1-0123456789ab"
    assert encode(Stamp(1 << 40, 0, 0)) == "00000000-0000-1000-8000-010000000000"
    assert encode(Stamp(1 << 40, 0xF, Flag.ACK)) == "00000000-0000-1000-bc02-010000000000"


@settings(deadline=None)
@given(STAMPS)
def test_the_layout_as_uuid_sees_it(stamp: Stamp) -> None:
    value = uuid.UUID(encode(stamp))
    assert (value.version, value.variant) == (1, uuid.RFC_4122)
    assert value.time == stamp.clock >> 4
    assert value.node == stamp.producer
    assert value.clock_seq == (stamp.clock & 0xF) << 10 | stamp.flags


@settings(deadline=None)
@given(STAMPS)
def test_round_trip(stamp: Stamp) -> None:
    text = encode(stamp)
    assert len(text) == 36
    assert decode(text) == decode(text.upper()) == stamp
    assert stamp.kind == stamp.flags & 3


def test_one_of_pythons_own() -> None:
    value = uuid.uuid1(node=0x0300_0000_0001, clock_seq=0b0101_0000_0000_10)
    assert decode(str(value)) == Stamp(0x0300_0000_0001, value.time << 4 | 0b0101, Flag.ACK)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a UUID"),
        ("87654321cba91fed9ff10123456789ab", "not a UUID"),
        ("87654321-cba9-1fed-9ff1-0123456789a", "not a UUID"),
        ("87654321-cba9-1fed-9ff1-0123456789ab\n", "not a UUID"),
        ("\uff187654321-cba9-1fed-9ff1-0123456789ab", "not a UUID"),
        (None, "not a UUID"),
        (7, "not a UUID"),
        ("87654321-cba9-4fed-9ff1-0123456789ab", "version 4"),
        ("87654321-cba9-1fed-5ff1-0123456789ab", "variant"),
        ("87654321-cba9-1fed-dff1-0123456789ab", "variant"),
        ("87654321-cba9-1fed-9ff1-0023456789ab", "multicast"),
        ("87654321-cba9-1fed-9ff3-0123456789ab", "bits of its flags are 3"),
    ],
)
def test_what_is_refused(text: object, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        decode(text)


@settings(deadline=None)
@given(
    st.text(max_size=50) | st.from_regex(r"[0-9a-g]{8}-[0-9a-f]{4}-[01][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
)
def test_hostile_texts_are_refused_or_right(text: str) -> None:
    try:
        stamp = decode(text)
    except BadInput:
        return
    assert encode(stamp) == text.lower()


@pytest.mark.parametrize(
    "stamp",
    [
        Stamp(1, 0),
        Stamp(1 << 48 | 1 << 40, 0),
        Stamp(1 << 40, 1 << 64),
        Stamp(1 << 40, -1),
        Stamp(1 << 40, 0, 3),
        Stamp(1 << 40, 0, 1024),
    ],
)
def test_what_no_uuid_can_carry(stamp: Stamp) -> None:
    with pytest.raises(BadInput, match="cannot be a UUID"):
        encode(stamp)


def test_kind() -> None:
    assert Stamp(0, 0, 0x3FE).kind is Flag.ACK
    with pytest.raises(BadInput):
        _ = Stamp(0, 0, 7).kind


def test_producers() -> None:
    made = {new_producer() for _ in range(100)}
    assert len(made) == 100
    assert all(parse_producer(producer_text(producer)) == producer for producer in made)
    for text in ("", "01", "00aabbccddee", "01aabbccddeg", 7, "01AABBCCDDEE "):
        with pytest.raises(BadInput, match="is not a producer"):
            parse_producer(text)
    assert parse_producer("01AABBCCDDEE") == 0x01AABBCCDDEE


def test_times() -> None:
    assert clock_time(0) == datetime(1582, 10, 15, tzinfo=UTC)
    when = datetime(2026, 1, 5, 12, 0, 0, 123456, tzinfo=UTC)
    assert clock_time(time_clock(when)) == when
    assert clock_time(time_clock(when) + (10 << 4)) - when == timedelta(microseconds=1)
    assert time_clock(datetime(1970, 1, 1, tzinfo=UTC)) == Ticker(lambda: 0).tick()
    assert clock_time((1 << 64) - 1).year == 5236
    for wrong in (datetime(2026, 1, 5), datetime(1582, 10, 14, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)):
        with pytest.raises(BadInput):
            time_clock(wrong)


def test_clocks_increase_whatever_the_wall_clock_does() -> None:
    times = iter([1000, 1000, 1099, 1100, 500, 99_000, 0])
    ticker = Ticker(lambda: next(times))
    clocks = [ticker.tick() for _ in range(7)]
    first = time_clock(datetime(1970, 1, 1, tzinfo=UTC)) + (10 << 4)
    assert [clock - first for clock in clocks] == [0, 1, 2, 16, 17, 980 << 4, (980 << 4) + 1]


def test_a_full_counter_carries_over() -> None:
    ticker = Ticker(lambda: 0)
    clocks = [ticker.tick() for _ in range(40)]
    assert [clock - clocks[0] for clock in clocks] == list(range(40))
    ticker.pass_by(clocks[-1] + 100)
    ticker.pass_by(5)
    assert ticker.tick() == clocks[-1] + 101


def test_threads_share_a_ticker() -> None:
    ticker = Ticker(lambda: 0)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(ticker.tick() for _ in range(2000))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8000

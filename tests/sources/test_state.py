"""States of parts: what can be stored comes back, and everything else is refused with its place."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadState
from penstock.sources.state import decode, encode

zones = st.one_of(
    st.none(),
    st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23))),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=zones),
    st.decimals(allow_nan=False),
    st.uuids(),
)
keys = st.one_of(st.text(), st.sampled_from(["$", "$$", "$bytes", "$$bytes", "$float", "$x"]))
states = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


def kinds(value: Any) -> Any:
    """The types in a value, since 1 == 1.0 == True."""
    if isinstance(value, list):
        return [kinds(each) for each in value]
    if isinstance(value, dict):
        return {key: kinds(each) for key, each in value.items()}
    return type(value)


@settings(deadline=None)
@given(states)
def test_a_state_comes_back_as_it_was(state: Any) -> None:
    back = decode("p", encode("p", state))
    assert back == state
    assert kinds(back) == kinds(state)
    assert encode("p", back) == encode("p", state)


@settings(deadline=None)
@given(states)
def test_the_text_is_plain_ascii_of_one_line_with_a_version_in_front(state: Any) -> None:
    text = encode("p", state)
    assert text.startswith("1:")
    assert text.isascii() and text.isprintable()


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308])
def test_every_float_comes_back(value: float) -> None:
    back = decode("p", encode("p", [value]))[0]
    assert (back, math.copysign(1, back)) == (value, math.copysign(1, value))


def test_nan_comes_back() -> None:
    back = decode("p", encode("p", {"a": math.nan}))
    assert type(back["a"]) is float and math.isnan(back["a"])
    assert decode("p", encode("p", Decimal("NaN"))).is_nan()


def test_a_tuple_comes_back_as_a_list_and_any_mapping_as_a_dictionary() -> None:
    state = (1, OrderedDict(a=(2, 3)), MappingProxyType({"b": ()}))
    assert decode("p", encode("p", state)) == [1, {"a": [2, 3]}, {"b": []}]


def test_a_zone_comes_back_as_its_distance_from_utc() -> None:
    berlin = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    back = decode("p", encode("p", berlin))
    assert back == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert back.utcoffset() == timedelta(hours=2)


def test_text_that_is_no_unicode_comes_back() -> None:
    assert decode("p", encode("p", {"\ud800": "\udfff"})) == {"\ud800": "\udfff"}


class Color(IntEnum):
    RED = 1


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "object"),
        ({1, 2}, "set"),
        (bytearray(b"x"), "bytearray"),
        (1j, "complex"),
        (time(1), "datetime.time"),
        (timedelta(1), "datetime.timedelta"),
        (Path("x"), "pathlib.PosixPath"),
        (np.int64(1), "numpy.int64"),
        (np.float64(1), "numpy.float64"),
        (np.str_("x"), "numpy.str_"),
        (np.zeros(1), "numpy.ndarray"),
        (Color.RED, "Color"),
        (Pair(1, 2), "Pair"),
        (lambda: 1, "function"),
    ],
)
def test_another_type_is_refused_by_part_place_and_type(value: Any, name: str) -> None:
    with pytest.raises(BadState) as caught:
        encode("orders/7", {"offsets": [1, {"at": value}]})
    assert "part 'orders/7'" in caught.value.what
    assert "state['offsets'][1]['at'] is of type" in caught.value.what
    assert name in caught.value.what
    assert caught.value.left and caught.value.hint


@pytest.mark.parametrize("key", [1, None, b"x", ("a",), np.str_("x"), True])
def test_a_key_that_is_not_text_is_refused(key: Any) -> None:
    with pytest.raises(BadState, match=r"part 'p' .*state\['a'\] has a key of type") as caught:
        encode("p", {"a": {key: 1}})
    assert caught.value.hint is not None and "str(key)" in caught.value.hint


def nested(depth: int) -> list[Any]:
    state: list[Any] = []
    for _ in range(depth):
        state = [state]
    return state


def test_64_levels_come_back_and_more_are_refused() -> None:
    assert decode("p", encode("p", nested(64))) == nested(64)
    with pytest.raises(BadState, match="part 'p' is nested more than 64 deep at state"):
        encode("p", nested(65))


def test_a_state_that_holds_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["me"] = state
    with pytest.raises(BadState, match="nested more than 64 deep"):
        encode("p", state)


def test_a_number_of_thousands_of_digits_is_refused_both_ways() -> None:
    with pytest.raises(BadState, match="part 'p' cannot be encoded"):
        encode("p", 10**5000)
    with pytest.raises(BadState, match="part 'p' cannot be read"):
        decode("p", "1:" + "9" * 5000)


@pytest.mark.parametrize("text", ["2:{}", "0:1", "", "{}", "null", "1", "x:1", " 1:1", "01:1", "10:1"])
def test_another_version_is_refused(text: str) -> None:
    with pytest.raises(BadState, match="the state of part 'p' has version") as caught:
        decode("p", text)
    assert caught.value.hint is not None and "version" in caught.value.hint


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[1,",
        '"open',
        "1 2",
        "nope",
        '{"$bytes":"*"}',
        '{"$bytes":"YQ"}',
        '{"$bytes":"ü"}',
        '{"$bytes":5}',
        '{"$bytes":null}',
        '{"$date":"2026-13-01"}',
        '{"$date":20260101}',
        '{"$datetime":"soon"}',
        '{"$datetime":[]}',
        '{"$decimal":"one"}',
        '{"$decimal":[0,[1],0]}',
        '{"$uuid":"1"}',
        '{"$uuid":5}',
        '{"$uuid":{"a":1}}',
        '{"$float":"much"}',
        '{"$float":1}',
        '{"$unknown":"1"}',
        '{"$":"1"}',
        '{"$__import__":"os"}',
        '{"$bytes":"YQ==","a":1}',
        '{"a":1,"$b":2}',
        '{"$a":{"$bytes":"YQ=="}}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 5000 + "]" * 5000,
    ],
    ids=lambda body: body[:24] or "empty",
)
def test_broken_or_hostile_text_is_refused(body: str) -> None:
    with pytest.raises(BadState, match="the state of part 'p' cannot be read") as caught:
        decode("p", f"1:{body}")
    assert caught.value.hint


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_state_or_refused(text: str) -> None:
    for each in (text, f"1:{text}"):
        with suppress(BadState):
            decode("p", each)


def test_what_was_stored_before_can_be_read() -> None:
    """The encoding is a promise to programs that come later."""
    text = (
        '1:{"a":[1,true,null,1.5,"x"],"b":{"$bytes":"AP8="},"c":{"$date":"2026-01-02"},'
        '"d":{"$datetime":"2026-01-02T03:04:05.000006+00:00"},"e":{"$decimal":"1.20"},"f":{"$float":"nan"},'
        '"g":{"$uuid":"00000000-0000-0000-0000-000000000007"},"$$h":{}}'
    )
    found = decode("p", text)
    assert math.isnan(found.pop("f"))
    assert found == {
        "a": [1, True, None, 1.5, "x"],
        "b": b"\x00\xff",
        "c": date(2026, 1, 2),
        "d": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "e": Decimal("1.20"),
        "g": UUID(int=7),
        "$h": {},
    }
    assert encode("p", decode("p", text)) == text
